"""What a run found, as one table, and as a plot of quality against speed."""

from __future__ import annotations

import math
from html import escape
from typing import Any

from .structure import MATCHED

COLUMNS = ("overall", "nid", "teds", "teds_shifted", "mhs", "rtl", "adjacency", "cer", "cer_any_order")
TITLES = {"teds_shifted": "shifted", "adjacency": "adjacent F1", "cer": "CER %", "cer_any_order": "any order %"}


def table(rows: list[dict[str, Any]]) -> str:
    """One line per set and engine."""
    used = [name for name in COLUMNS if any(name in row["scores"] for row in rows)]
    head = [
        "set",
        "part",
        "engine",
        *(TITLES.get(name, name.upper() if len(name) == 4 or name in ("nid", "mhs") else name) for name in used),
    ]
    head += ["CPU ms/page", "pages/s", "peak MB", "failed"]
    lines = [head]
    for row in rows:
        cells = [row["set"], row["part"], row["engine"]]
        for name in used:
            value = row["scores"].get(name)
            percent = name.startswith("cer")
            cells.append("" if value is None else f"{value * 100:.2f}" if percent else f"{value:.3f}")
        speed = row["cpu_ms"]
        cells += [f"{speed:.1f}", f"{1000 / speed:.1f}" if speed else "", f"{row['peak_mb']:.0f}", str(row["failed"])]
        lines.append(cells)
    return laid_out(lines)


def structure_table(rows: list[dict[str, Any]]) -> str:
    """Recall and precision of what makes up a page, and the faults that are counted."""
    shown = [row for row in rows if any(name.startswith("#") for name in row["scores"])]
    head = ["set", "part", "engine", "cuts/100 p", "merged %", *MATCHED, "coverage", "low", "invented tables"]
    lines = [head]
    for row in shown:
        counts = {name[1:]: value for name, value in row["scores"].items() if name[0] == "#"}
        cells = [row["set"], row["part"], row["engine"], f"{100 * counts.get('cuts', 0) / row['pages']:.1f}"]
        near = counts.get("neighbours", 0)
        cells.append(f"{100 * counts.get('merged', 0) / near:.1f}" if near else "")
        for kind in MATCHED:
            hit, wanted, got = (counts.get(f"{kind}:{each}", 0) for each in ("hit", "wanted", "got"))
            cells.append(f"{hit / wanted:.2f}/{hit / got:.2f}" if wanted and got else "0" if wanted else "")
        words = counts.get("words:wanted", 0)
        cells.append(f"{counts['words:hit'] / words:.4f}" if words else "")
        cells += [f"{counts.get(name, 0):.0f}" for name in ("low coverage", "invented tables")]
        lines.append(cells)
    return laid_out(lines)


def laid_out(lines: list[list[str]]) -> str:
    head = lines[0]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    made = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    ]
    made.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(made)


WIDTH, HEIGHT, EDGE = 720, 420, 60


def plot(rows: list[dict[str, Any]], date: str) -> str:
    """Overall quality on `pdf/` against pages per second, the better the further to the upper right."""
    points = [(1000 / row["cpu_ms"], row["scores"]["overall"], row["engine"]) for row in rows if row["cpu_ms"]]
    slowest, fastest = (math.log10(edge(speed for speed, _, _ in points)) for edge in (min, max))
    low, high = math.floor(slowest), max(math.ceil(fastest), math.floor(slowest) + 1)
    worst = math.floor(min(score for _, score, _ in points) * 10) / 10

    def x(speed: float) -> float:
        return EDGE + (math.log10(speed) - low) / (high - low) * (WIDTH - 2 * EDGE)

    def y(score: float) -> float:
        return HEIGHT - EDGE - (score - worst) / (1 - worst) * (HEIGHT - 2 * EDGE)

    def text(at: tuple[float, float], words: str, style: str) -> str:
        return f'<text x="{at[0]:.1f}" y="{at[1]:.1f}" {style}>{escape(words)}</text>'

    middle = 'text-anchor="middle"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"',
        ' font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        text((WIDTH / 2, 24), f"Quality against speed, one-page PDFs, {date}", f'{middle} font-size="15"'),
        text((WIDTH / 2, HEIGHT - 14), "pages per second on one core", middle),
        text((18, HEIGHT / 2), "overall quality", f'{middle} transform="rotate(-90 18 {HEIGHT / 2})"'),
    ]
    for power in range(low, high + 1):
        at = x(10**power)
        parts.append(f'<path d="M{at:.1f} {EDGE - 20}V{HEIGHT - EDGE}" stroke="#ddd"/>')
        parts.append(text((at, HEIGHT - EDGE + 18), f"{10.0**power:g}", f'{middle} fill="#555"'))
    for tenth in range(round(worst * 20), 21):
        at = y(tenth / 20)
        parts.append(f'<path d="M{EDGE} {at:.1f}H{WIDTH - EDGE + 20}" stroke="#ddd"/>')
        parts.append(text((EDGE - 8, at + 4), f"{tenth / 20:.2f}", 'text-anchor="end" fill="#555"'))
    for speed, score, engine in points:
        ours = engine == "docmill"
        colour, size = ("#c2410c", 7) if ours else ("#334155", 5)
        parts.append(f'<circle cx="{x(speed):.1f}" cy="{y(score):.1f}" r="{size}" fill="{colour}"/>')
        weight = ' font-weight="bold"' if ours else ""
        parts.append(text((x(speed), y(score) - 10), engine, f'{middle} fill="{colour}"{weight}'))
    return "\n".join([*parts, "</svg>", ""])
