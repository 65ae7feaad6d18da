"""The sets of the corpus, their two parts, and how each is scored."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from statistics import fmean

from . import markup, scores, structure

CACHE = Path(__file__).parent.parent / ".scores"
REVISION = 6
"""Raise it when a score changes: scores are kept, because trees take long to compare."""
SCANS_REVISION = 5
TUNED, UNSEEN = "tuned", "unseen"


@dataclass(frozen=True, slots=True)
class Item:
    """A document and where its truth lies; `wild` has none."""

    kind: str
    path: Path
    truth: Path | None

    @property
    def part(self) -> str:
        """Rules are made on one half of each set and only checked on the other. All prints of one text are in one."""
        origin = self.path.name.split(".")[0]
        return (TUNED, UNSEEN)[sha256(origin.encode()).digest()[0] % 2]

    @property
    def pages(self) -> int:
        if self.path.suffix != ".pdf":
            return 1
        import pypdfium2

        try:
            with pypdfium2.PdfDocument(self.path) as document:
                return len(document)
        except pypdfium2.PdfiumError:
            return 1

    @property
    def has_text(self) -> bool:
        """Born digital: its pages have a text layer."""
        import pypdfium2

        with pypdfium2.PdfDocument(self.path) as document:
            return all(page.get_textpage().count_chars() > 20 for page in document)

    @property
    def bounded_text(self) -> str:
        """The words inside the page box, as PDFium reads them: some files carry their neighbours' text outside it."""
        import pypdfium2

        if self.path.suffix != ".pdf":
            return ""
        try:
            with pypdfium2.PdfDocument(self.path) as document:
                text = "\n".join(page.get_textpage().get_text_bounded() for page in document)
        except pypdfium2.PdfiumError:
            return ""
        return re.sub(r"[\ufffe\x02\u00ad]\s*", "", text)


SETS = ("pdf", "prints-plain", "prints-tagged", "rendered", "tables", "wild", "office", "scans")
SPLIT = ("pdf", "prints-plain", "prints-tagged", "rendered", "tables", "wild")
STRUCTURED = ("pdf", "prints-plain", "prints-tagged", "rendered")
READS = {
    "docvortex": (*STRUCTURED, "tables", "wild"),
    "liteparse": (*STRUCTURED, "tables", "wild"),
    "pypdfium2": STRUCTURED,
    "pdf-inspector": (*STRUCTURED, "tables", "wild"),
    "pymupdf4llm": (*STRUCTURED, "tables", "wild"),
    "markitdown": (*STRUCTURED, "tables", "office"),
    "kreuzberg": (*STRUCTURED, "tables", "office"),
}
"""What a peer can read here without a model download; docmill reads all."""


def items(corpus: Path, name: str, limit: int | None = None) -> list[Item]:
    folder = corpus / name.partition("-")[0]
    found = []
    for path in sorted(folder.iterdir()):
        if path.suffix in (".md", ".txt", ".xml") or (name == "wild" and path.suffix != ".pdf"):
            continue
        if name.startswith("prints-") and not path.name.endswith(f".{name.removeprefix('prints-')}.pdf"):
            continue
        stem = path.stem.split("__")[0] if name == "scans" else path.name.split(".")[0]
        truth = folder / f"{stem}{ {'tables': '-str.xml', 'scans': '.txt'}.get(name, '.md') }"
        if truth.exists() or name == "wild":
            found.append(Item(name, path, truth if truth.exists() else None))
    if limit and limit < len(found):
        step = len(found) / limit
        found = [found[int(number * step)] for number in range(limit)]
    return found


def score(item: Item, markdown: str) -> dict[str, float]:
    revision = SCANS_REVISION if item.kind == "scans" else REVISION
    truth = item.truth.read_text(errors="replace") if item.truth else item.path.name
    key = sha256(f"{revision}\0{item.kind}\0{truth}\0{markdown}".encode()).hexdigest()
    kept = CACHE / key[:2] / key
    if kept.exists():
        known: dict[str, float] = json.loads(kept.read_text())
        return known
    result = measured(item, markdown)
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(result))
    return result


def measured(item: Item, markdown: str) -> dict[str, float]:
    """Scores, and counts whose names begin with a number sign."""
    if item.kind == "wild" or item.truth is None:
        return as_counts(coverage(item, markdown) | structure.count_paragraph_faults(None, markdown))
    if item.kind == "tables":
        found = markup.tables(markdown)
        truth, shifted = (scores.tables_of_xml(item.truth, shifted=each) for each in (False, True))
        as_it_is = scores.teds(truth, found) or 0.0
        moved = as_it_is if shifted == truth else scores.teds(shifted, found) or 0.0
        own = {"teds": as_it_is, "teds_shifted": moved, "adjacency": scores.adjacency(truth, found)}
        return own | as_counts(coverage(item, markdown))
    text = item.truth.read_text()
    if item.kind == "scans":
        ordered, loose = scores.cer(text, markdown)
        joined = scores.cer(text, markdown, joined=True)
        bare = scores.cer(text, markdown, bare=True)
        rates = {"cer": ordered, "cer_any_order": loose, "cer_joined": joined[0], "cer_joined_any_order": joined[1]}
        return rates | {"cer_bare": bare[0], "cer_bare_any_order": bare[1]}
    if item.kind == "office":
        return {"nid": scores.plain_nid(text, markdown)}
    counts = structure.match(text, markdown) + structure.count_paragraph_faults(text, markdown)
    counts["invented tables"] = structure.count_invented_tables(text, markdown)
    own = scores.document(text, markdown)
    if re.match(r"(ar|he|fa|ur)_", item.path.name):
        own["rtl"] = scores.plain_nid(text, markdown)
    return own | as_counts(counts | coverage(item, markdown))


def coverage(item: Item, markdown: str) -> Counter[str]:
    hit, wanted = structure.cover(item.bounded_text, markdown)
    low = wanted > 0 and hit < 0.95 * wanted
    return Counter({"words:hit": hit, "words:wanted": wanted, "low coverage": int(low)})


def as_counts(counts: Counter[str]) -> dict[str, float]:
    return {f"#{name}": float(number) for name, number in counts.items()}


def score_all(work: list[tuple[Item, str]]) -> list[dict[str, float]]:
    with ProcessPoolExecutor(2) as pool:
        return list(pool.map(score, *zip(*work, strict=True), chunksize=4)) if work else []


def means(found: list[dict[str, float]]) -> dict[str, float]:
    """The mean of every score, the sum of every count."""
    values: dict[str, list[float]] = defaultdict(list)
    for one in found:
        for name, value in one.items():
            values[name].append(value)
    return {name: sum(numbers) if name[0] == "#" else fmean(numbers) for name, numbers in values.items()}


def scan_kind(item: Item) -> str:
    """`de noise`, `zh clean`: the language and what was done to the page."""
    done = re.sub(r"^\d+", "", item.path.stem.partition("__")[2])
    return f"{item.path.stem[:2]} {done or 'clean'}"
