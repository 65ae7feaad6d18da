"""The sets of the corpus, and how each is scored."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from statistics import fmean

from . import markup, scores

CACHE = Path(__file__).parent.parent / ".scores"
REVISION = 4
"""Raise it when a score changes: scores are kept, because trees take long to compare."""
SCANS_REVISION = 5


@dataclass(frozen=True, slots=True)
class Item:
    """A document and where its truth lies."""

    kind: str
    path: Path
    truth: Path

    @property
    def pages(self) -> int:
        if self.path.suffix != ".pdf":
            return 1
        import pypdfium2

        with pypdfium2.PdfDocument(self.path) as document:
            return len(document)

    @property
    def has_text(self) -> bool:
        """Born digital: its pages have a text layer."""
        import pypdfium2

        with pypdfium2.PdfDocument(self.path) as document:
            return all(page.get_textpage().count_chars() > 20 for page in document)


SETS = ("pdf", "rendered", "tables", "office", "scans")
READS = {
    "docvortex": ("pdf", "rendered", "tables"),
    "liteparse": ("pdf", "rendered", "tables"),
    "pypdfium2": ("pdf", "rendered"),
    "pdf-inspector": ("pdf", "rendered", "tables"),
    "pymupdf4llm": ("pdf", "rendered", "tables"),
    "markitdown": ("pdf", "rendered", "tables", "office"),
    "kreuzberg": ("pdf", "rendered", "tables", "office"),
}
"""What a peer can read here without a model download; docmill reads all."""


def items(corpus: Path, name: str, limit: int | None = None) -> list[Item]:
    folder = corpus / name
    found = []
    for path in sorted(folder.iterdir()):
        if path.suffix in (".md", ".txt", ".xml"):
            continue
        stem = path.stem.split("__")[0] if name == "scans" else path.stem
        truth = folder / f"{stem}{ {'tables': '-str.xml', 'scans': '.txt'}.get(name, '.md') }"
        if truth.exists():
            found.append(Item(name, path, truth))
    if limit and limit < len(found):
        step = len(found) / limit
        found = [found[int(number * step)] for number in range(limit)]
    return found


def score(item: Item, markdown: str) -> dict[str, float]:
    revision = SCANS_REVISION if item.kind == "scans" else REVISION
    key = sha256(f"{revision}\0{item.kind}\0{item.truth.read_text(errors='replace')}\0{markdown}".encode()).hexdigest()
    kept = CACHE / key[:2] / key
    if kept.exists():
        known: dict[str, float] = json.loads(kept.read_text())
        return known
    result = measured(item, markdown)
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(result))
    return result


def measured(item: Item, markdown: str) -> dict[str, float]:
    if item.kind == "tables":
        found = markup.tables(markdown)
        truth, shifted = (scores.tables_of_xml(item.truth, shifted=each) for each in (False, True))
        as_it_is = scores.teds(truth, found) or 0.0
        moved = as_it_is if shifted == truth else scores.teds(shifted, found) or 0.0
        return {"teds": as_it_is, "teds_shifted": moved, "adjacency": scores.adjacency(truth, found)}
    truth = item.truth.read_text()
    if item.kind == "scans":
        ordered, loose = scores.cer(truth, markdown)
        joined = scores.cer(truth, markdown, joined=True)
        bare = scores.cer(truth, markdown, bare=True)
        found = {"cer": ordered, "cer_any_order": loose, "cer_joined": joined[0], "cer_joined_any_order": joined[1]}
        return found | {"cer_bare": bare[0], "cer_bare_any_order": bare[1]}
    if item.kind == "office":
        return {"nid": scores.plain_nid(truth, markdown)}
    return scores.document(truth, markdown)


def score_all(work: list[tuple[Item, str]]) -> list[dict[str, float]]:
    with ProcessPoolExecutor(2) as pool:
        return list(pool.map(score, *zip(*work, strict=True), chunksize=4)) if work else []


def means(found: list[dict[str, float]]) -> dict[str, float]:
    values: dict[str, list[float]] = defaultdict(list)
    for one in found:
        for name, value in one.items():
            values[name].append(value)
    return {name: fmean(numbers) for name, numbers in values.items()}


def scan_kind(item: Item) -> str:
    """`de noise`, `zh clean`: the language and what was done to the page."""
    done = re.sub(r"^\d+", "", item.path.stem.partition("__")[2])
    return f"{item.path.stem[:2]} {done or 'clean'}"
