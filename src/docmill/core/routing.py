"""Which engine a document goes to, in how many pieces, and whether what came back is good enough.

Pure: a document is a few facts, an engine is an offer, a policy says what is allowed. The answer is a route.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from docmill.core.links import without_images
from docmill.core.parsed import Figure, Page, Parsed

PDF: Final = "application/pdf"
UNREADABLE: Final = re.compile("\ufffd|[\ue000-\uf8ff]|\\(cid:\\d+\\)|[\x00-\x08\x0e-\x1f]")
POOR: Final = 0.2
"""More than this share of the pages without readable text, and another engine is worth its price."""
GARBAGE: Final = 0.1
ASSET_LINK: Final = re.compile(r"\]\(assets/((?:[^)\s\]]++|\](?!\())++)\)")
FIGURE_NAME: Final = re.compile(r"p(\d{3,})_(.+)")


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a document before anybody parses it."""

    media_type: str
    size: int
    pages: int | None = None
    """None: it has none, or nobody counted."""
    text_pages: int | None = None
    """Pages with a text layer, of those that were looked at."""
    looked_at: int = 0

    @property
    def scanned_share(self) -> float:
        if not self.looked_at or self.text_pages is None:
            return 0.0
        return 1 - self.text_pages / self.looked_at


@dataclass(frozen=True, slots=True)
class Reach:
    """How much an engine takes in one go."""

    pages: int
    bytes: int = 200 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Offer:
    """An engine over the network, as the router sees it."""

    name: str
    media_types: frozenset[str]
    reach: Reach
    home: bool = False
    """It stands in the house."""


@dataclass(frozen=True, slots=True)
class Policy:
    stay_home: bool = False
    """The document never leaves the house."""
    budget_pages: int | None = None
    """Pages of one document that may go to providers outside."""
    prefer: str = "local"
    """`local`: providers only when the local result is poor; `provider`: they come first."""


@dataclass(frozen=True, slots=True)
class Refusal:
    engine: str
    why: str


@dataclass(frozen=True, slots=True)
class Slice:
    """Pages *first* to *last*, counted from 0, both included."""

    first: int
    last: int

    @property
    def pages(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class Route:
    """Engines in the order in which they are tried, and who is not, and why."""

    engines: tuple[str, ...]
    refusals: tuple[Refusal, ...] = ()


def route(facts: Facts, offers: Sequence[Offer], policy: Policy) -> Route:
    refusals = tuple(Refusal(offer.name, why) for offer in offers if (why := refusal(facts, offer, policy)))
    refused = {one.engine for one in refusals}
    providers = tuple(offer.name for offer in offers if offer.name not in refused)
    ordered = (*providers, "local") if policy.prefer == "provider" else ("local", *providers)
    return Route(ordered, refusals)


def refusal(facts: Facts, offer: Offer, policy: Policy) -> str:
    """Why the document may or can not go there; empty: it may."""
    if facts.media_type not in offer.media_types:
        return "it does not read this type"
    if why := ban(facts, policy, home=offer.home):
        return why
    if facts.size > offer.reach.bytes and len(slices(facts, offer.reach)) == 1:
        return f"it takes files up to {offer.reach.bytes // 1024**2} MB"
    return ""


def ban(facts: Facts, policy: Policy, *, home: bool) -> str:
    """Why the document may not go to a provider, whoever asks for it; empty: it may."""
    if home:
        return ""
    if policy.stay_home:
        return "it must not leave the house"
    pages = facts.pages or 1
    if policy.budget_pages is not None and pages > policy.budget_pages:
        return f"{pages} pages are more than the budget of {policy.budget_pages}"
    return ""


def stricter(policy: Policy, options: Mapping[str, Any]) -> Policy:
    """The house's policy with what the document asks for. It can be made stricter, never looser."""
    asked = options.get("budget_pages")
    budgets = [one for one in (policy.budget_pages, asked) if isinstance(one, int)]
    return replace(
        policy,
        stay_home=policy.stay_home or options.get("stay_home") is True,
        budget_pages=min(budgets) if budgets else None,
    )


def slices(facts: Facts, reach: Reach) -> tuple[Slice, ...]:
    """Pieces within the reach, as even as can be; by size it is a guess, for pages differ. Only PDFs can be cut."""
    pages = facts.pages or 1
    if facts.media_type != PDF:
        return (Slice(0, pages - 1),)
    count = min(max(-(-pages // reach.pages), -(-facts.size // reach.bytes), 1), pages)
    size, rest = divmod(pages, count)
    found, first = [], 0
    for index in range(count):
        last = first + size + (index < rest) - 1
        found.append(Slice(first, last))
        first = last + 1
    return tuple(found)


def halves(piece: Slice) -> tuple[Slice, ...]:
    """A piece in two; a single page stays as it is."""
    if piece.pages == 1:
        return (piece,)
    middle = piece.first + piece.pages // 2
    return Slice(piece.first, middle - 1), Slice(middle, piece.last)


# --- what came back


LEFT_OUT: Final = "the provider left the page out"


def fitted(parsed: Parsed, pages: int) -> Parsed | None:
    """The result with all pages of the document, those that the engine left out named; None: it has other ones."""
    found = {page.index: page for page in parsed.pages}
    places = {figure.page_index or 0 for figure in parsed.figures}
    if len(found) != len(parsed.pages) or not all(0 <= index < pages for index in found.keys() | places):
        return None
    absent = [index for index in range(pages) if index not in found]
    if not absent:
        return parsed
    whole = tuple(found.get(index) or Page(index, "", LEFT_OUT) for index in range(pages))
    return replace(parsed, pages=whole, facts=parsed.facts | {"missing_pages": [index + 1 for index in absent]})


@dataclass(frozen=True, slots=True)
class Quality:
    pages: int
    empty: int = 0
    garbled: int = 0
    damaged: int = 0

    @property
    def bad_share(self) -> float:
        return (self.empty + self.garbled + self.damaged) / self.pages if self.pages else 1.0

    @property
    def is_poor(self) -> bool:
        return self.bad_share > POOR


def quality(pages: Sequence[Page]) -> Quality:
    empty = garbled = damaged = 0
    for page in pages:
        text = without_images(page.markdown).strip()
        if page.damage:
            damaged += 1
        elif not text:
            empty += 1
        elif is_garbled(text):
            garbled += 1
    return Quality(len(pages), empty, garbled, damaged)


def is_garbled(text: str) -> bool:
    """Letters that stand for nothing: fonts without a map, broken encodings."""
    bare = "".join(text.split())
    strange = sum(len(found[0]) for found in UNREADABLE.finditer(bare))
    return strange > GARBAGE * len(bare)


# --- pieces put together again


@dataclass(frozen=True, slots=True)
class Part:
    """One slice with what became of it: a result, or why there is none."""

    slice: Slice
    parsed: Parsed | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Merged:
    parsed: Parsed
    renamed: Mapping[tuple[int, str], str] = field(default_factory=dict)
    """Slice and name of a figure there: its name here."""


def merge(engine: str, parts: Sequence[Part]) -> Merged:
    """Pages in order, figures under the numbers of their pages, missing pages named.

    At least one part has a result, and every result is fitted.
    """
    pages: list[Page] = []
    figures: list[Figure] = []
    renamed: dict[tuple[int, str], str] = {}
    ordered = sorted(parts, key=lambda part: part.slice.first)
    for index, part in enumerate(ordered):
        if part.parsed is None:
            pages += [Page(number, "", part.why) for number in range(part.slice.first, part.slice.last + 1)]
            continue
        names = {figure.name: _renumbered(figure.name, part.slice.first) for figure in part.parsed.figures}
        renamed |= {(index, old): new for old, new in names.items()}
        pages += _shifted(part.parsed.pages, part.slice.first, names)
        figures += [_moved(figure, part.slice.first, names) for figure in part.parsed.figures]
    known = [part.parsed for part in ordered if part.parsed]
    first = next((one for one in known if one.facts), known[0])  # a blank slice tells nothing
    missing = [page.index + 1 for page in pages if page.damage]
    facts = {**first.facts, "slices": len(ordered)} | ({"missing_pages": missing} if missing else {})
    parsed = Parsed(engine, first.media_type, tuple(pages), tuple(figures), first.title, first.language, facts)
    return Merged(parsed, renamed)


def _shifted(pages: Sequence[Page], first: int, names: Mapping[str, str]) -> list[Page]:
    """The slice's pages under their numbers in the whole."""
    shifted = []
    for page in pages:
        markdown = ASSET_LINK.sub(lambda link: f"](assets/{names.get(link[1], link[1])})", page.markdown)
        shifted.append(replace(page, index=first + page.index, markdown=markdown))
    return shifted


def _moved(figure: Figure, first: int, names: Mapping[str, str]) -> Figure:
    index = None if figure.page_index is None else figure.page_index + first
    return replace(figure, name=names[figure.name], page_index=index)


def _renumbered(name: str, first: int) -> str:
    found = FIGURE_NAME.fullmatch(name)
    return f"p{int(found[1]) + first:03d}_{found[2]}" if found else f"p{first + 1:03d}_{name}"


# --- how long it may take

LOCAL_TEXT_S: Final = 0.15
LOCAL_SCAN_S: Final = 2.5
LOCAL_OTHER_S: Final = 1.0
PROVIDER_S: Final = 0.8
"""Seconds a page, on two cores, from docs/reference/benchmarks.md; a provider's is a guess."""


def expected_s(facts: Facts, engine: str, *, parallel: int = 1) -> float:
    pages = facts.pages or 1
    if engine != "local":
        return pages * PROVIDER_S / max(1, parallel)
    if facts.media_type.startswith("image/"):
        return pages * LOCAL_SCAN_S
    if facts.media_type != PDF:
        return LOCAL_OTHER_S
    scanned = facts.scanned_share
    return pages * (scanned * LOCAL_SCAN_S + (1 - scanned) * LOCAL_TEXT_S)


# --- the whole of it, before anything runs


@dataclass(frozen=True, slots=True)
class Foresight:
    """What would happen to a document."""

    media_type: str
    size: int
    pages: int | None
    engine: str
    then: tuple[str, ...] = ()
    """Who is asked if the first result is poor."""
    slices: tuple[Slice, ...] = ()
    """More than one only where a provider takes less than the whole."""
    expected_s: float = 0.0
    refusals: tuple[Refusal, ...] = ()
    code: str = ""
    """Why nothing would come of it; empty: it would be parsed."""
    message: str = ""


def foresee(
    facts: Facts, wanted: str, offers: Sequence[Offer], policy: Policy, *, parallel: Mapping[str, int]
) -> Foresight:
    if wanted == "auto":
        found = route(facts, offers, policy)
    else:
        asked = [offer for offer in offers if offer.name == wanted]
        refusals = tuple(Refusal(one.name, why) for one in asked if (why := refusal(facts, one, policy)))
        found = Route(() if refusals else (wanted,), refusals)
    if not found.engines:
        why = "; ".join(f"{one.engine}: {one.why}" for one in found.refusals)
        return Foresight(
            facts.media_type,
            facts.size,
            facts.pages,
            wanted,
            refusals=found.refusals,
            code="provider_forbidden",
            message=why,
        )
    first = found.engines[0]
    reach = next((offer.reach for offer in offers if offer.name == first), None)
    pieces = slices(facts, reach) if reach and facts.pages else ()
    return Foresight(
        facts.media_type,
        facts.size,
        facts.pages,
        first,
        then=found.engines[1:],
        slices=pieces if len(pieces) > 1 else (),
        expected_s=round(expected_s(facts, first, parallel=min(parallel.get(first, 1), max(1, len(pieces)))), 1),
        refusals=found.refusals,
    )
