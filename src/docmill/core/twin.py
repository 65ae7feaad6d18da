"""The shadow twin: what is to lie beside a source, as values. Nothing here touches a disk.

    folder    report.pdf  ->  _report.pdf/report.md, page_001.md, page_001.png, images, .docmill.json
    sidecar   report.pdf  ->  report.en.md, .report/images, .report/.docmill.en.json

Paths are relative to the source's folder and have at most one folder in them; each name fits a file system (255 bytes).
A manifest in the twin holds the hash of every file, so that a person's edit is told from our own writing.

Sidecars of `a.pdf` and `a.docx` would share the name `a.en.md`. The first one there has it; the other one takes
`otherwise`, the same twin under the source's full name: `a.docx.en.md` and `.a.docx/`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from html import escape
from itertools import pairwise
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final, Literal
from unicodedata import normalize
from urllib.parse import quote

from docmill.core.errors import Invalid
from docmill.core.parsed import Page, Parsed

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

Layout = Literal["folder", "sidecar"]

MANIFEST: Final = ".docmill.json"
MANIFEST_VERSION: Final = 1
TYPE: Final = "shadow-twin"
UNKNOWN_LANGUAGE: Final = "und"
LONGEST_NAME: Final = 255
MAX_FOLDER_DEPTH: Final = 32

_LANGUAGE = re.compile(r"[A-Za-z0-9]{1,8}(-[A-Za-z0-9]{1,8}){0,3}")
_EXTENSION = re.compile(r"[.][A-Za-z0-9]{1,16}")


@dataclass(frozen=True, slots=True)
class TwinFile:
    """A file of the twin: either a text, or a copy of an asset."""

    path: str
    text: str | None = None
    asset: str | None = None
    sha256: str = ""
    """Of an asset whose digest is known: what the copy must have."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What we wrote, and from what."""

    source_file: str
    source_sha256: str
    layout: Layout
    language: str
    fingerprint: str
    """Of everything but the source that decides the result: engine, version, options. Its maker is the caller."""
    content: str
    """Digest of the twin itself without its date."""
    generated_at: str
    document: str
    """Path of the main Markdown file."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Path -> sha256, without the manifest."""
    version: int = MANIFEST_VERSION

    def is_current(self, source_sha256: str, fingerprint: str) -> bool:
        """Whether a new run on these bytes with these options would give the same."""
        return (self.source_sha256, self.fingerprint) == (source_sha256, fingerprint)

    def to_json(self) -> str:
        names = self.__dataclass_fields__
        return json.dumps({name: getattr(self, name) for name in names}, indent=2, sort_keys=True) + "\n"


@dataclass(frozen=True, slots=True)
class Twin:
    layout: Layout
    source_name: str
    folder_name: str
    """The folder that belongs to the twin alone, beside the source."""
    document: str
    """Path of the main Markdown file."""
    manifest_path: str
    files: tuple[TwinFile, ...]
    """Everything but the manifest, which needs the hashes of what was written."""
    manifest: Manifest
    """Without its files' hashes."""
    otherwise: Twin | None = None
    """The same twin under names that no other source lays claim to, where the first choice is taken (sidecar only)."""

    def manifest_for(self, hashes: Mapping[str, str]) -> Manifest:
        return replace(self.manifest, files=dict(sorted(hashes.items())))


def plan_twin(
    source_name: str,
    parsed: Parsed,
    *,
    layout: Layout,
    source_sha256: str,
    generated_by: str,
    generated_at: datetime,
    language: str | None = None,
    fingerprint: str = "",
    page_files: bool = True,
) -> Twin:
    """Lay out the twin of a source. *source_name* may be any text; it never becomes more than one path segment.

    *page_files*: also a file for each page of a document of several, in the layout `folder`.
    """
    facts = _Facts(
        source_name=_storable(source_name),
        source_sha256=source_sha256,
        layout=layout,
        language=_language(language or parsed.language),
        generated_by=generated_by,
        generated_at=generated_at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        fingerprint=fingerprint,
    )
    if layout == "folder":
        return _in_folder(facts, parsed, _pages_with_files(parsed) if page_files else ())
    first, second = _sidecar_stems(facts.source_name)
    return replace(_beside(facts, parsed, first), otherwise=_beside(facts, parsed, second))


def twin_folders(source_name: str, layout: Layout) -> tuple[str, ...]:
    """The folders in which the twin of a source may lie, first choice first."""
    name = _storable(source_name)
    if layout == "folder":
        return (shortened("_" + name),)
    return tuple(shortened("." + stem) for stem in _sidecar_stems(name))


def parse_manifest(text: str | bytes) -> Manifest | None:
    """Read a manifest; None if it is not one that we understand."""
    try:
        raw: dict[str, Any] = json.loads(text)
        manifest = Manifest(**raw)
        strings = [value for name, value in raw.items() if name not in {"files", "version"}]
        files = [text for pair in manifest.files.items() for text in pair]
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
    known = manifest.version == MANIFEST_VERSION and manifest.layout in {"folder", "sidecar"}
    sound = all(isinstance(value, str) for value in (*strings, *files))
    return manifest if known and sound and all(map(is_twin_path, (manifest.document, *manifest.files))) else None


def is_twin_path(path: str) -> bool:
    """Whether the path stays beside the source: a name, or a folder and a name."""
    names = path.split("/")
    return len(names) <= 2 and all(name not in {"", ".", ".."} and "\0" not in name for name in names)


def check_folder_depth(folders: Sequence[str]) -> None:
    """Of the folder that a caller wants, below their own: it is made with all folders around it."""
    if len(folders) > MAX_FOLDER_DEPTH:
        raise Invalid("twin_target_invalid", why=f"it is more than {MAX_FOLDER_DEPTH} folders deep")


def drifted(manifests: Manifest | Iterable[Manifest], current: Mapping[str, str]) -> tuple[str, ...]:
    """The files whose bytes are not the ones that we wrote. *current*: path -> sha256 of what is there now.

    A file that is missing was not edited: writing it again loses nobody's work. A file that no manifest knows counts,
    so pass only files that would be replaced. Manifests of several languages may share a folder.
    """
    known = (manifests,) if isinstance(manifests, Manifest) else tuple(manifests)
    return tuple(
        path for path, digest in sorted(current.items()) if all(one.files.get(path) != digest for one in known)
    )


# --- layouts


@dataclass(frozen=True, slots=True)
class _Facts:
    source_name: str
    source_sha256: str
    layout: Layout
    language: str
    generated_by: str
    generated_at: str
    fingerprint: str


def _in_folder(facts: _Facts, parsed: Parsed, pages: Sequence[Page]) -> Twin:
    folder = shortened("_" + facts.source_name)
    names = _Names(f"{folder}/")
    manifest_path = names.take(MANIFEST)
    document = names.take(shortened(_stem(facts.source_name), ".md"))
    width = max(3, len(str(len(parsed.pages))))
    page_paths = [names.take(f"page_{page.index + 1:0{width}}.md") for page in pages]
    assets = _assets(parsed, names, width)
    links = {asset.asset or "": _url(asset.path.removeprefix(f"{folder}/")) for asset in assets}
    texts = (relink(page.markdown.strip(), links) + "\n" for page in pages)
    files = tuple(TwinFile(path, text) for path, text in zip(page_paths, texts, strict=True))
    return _twin(facts, parsed, folder, document, manifest_path, links, (*files, *assets))


def _beside(facts: _Facts, parsed: Parsed, stem: str) -> Twin:
    folder = shortened("." + stem)
    document = shortened(stem, f".{facts.language}.md")
    names = _Names(f"{folder}/")
    manifest_path = names.take(f".docmill.{facts.language}.json")
    assets = _assets(parsed, names, max(3, len(str(len(parsed.pages)))))
    links = {asset.asset or "": _url(asset.path) for asset in assets}
    return _twin(facts, parsed, folder, document, manifest_path, links, assets)


def _sidecar_stems(name: str) -> tuple[str, str]:
    stem = _stem(name)
    return (name, "_" + name) if stem in {name, "", "."} else (stem, name)


def _twin(
    facts: _Facts,
    parsed: Parsed,
    folder: str,
    document: str,
    manifest_path: str,
    links: Mapping[str, str],
    others: tuple[TwinFile, ...],
) -> Twin:
    texts = (relink(page.markdown.strip(), links) for page in parsed.pages)
    body = "\n\n".join(text for text in texts if text)
    main = TwinFile(document, f"{_front_matter(facts, parsed)}\n{body}\n")
    files = (main, *others)
    undated = (replace(main, text=body), *others)
    manifest = Manifest(
        source_file=facts.source_name,
        source_sha256=facts.source_sha256,
        layout=facts.layout,
        language=facts.language,
        fingerprint=facts.fingerprint,
        content=_digest(facts.generated_by, parsed.damaged_pages, undated),
        generated_at=facts.generated_at,
        document=document,
    )
    return Twin(facts.layout, facts.source_name, folder, document, manifest_path, files, manifest)


def _pages_with_files(parsed: Parsed) -> tuple[Page, ...]:
    return parsed.pages if len(parsed.pages) > 1 else ()


def _assets(parsed: Parsed, names: _Names, width: int) -> tuple[TwinFile, ...]:
    """Page images under their page's number, then figures under a safe form of their own name; each asset once."""
    digests = {figure.name: figure.sha256 for figure in parsed.figures}
    files: dict[str, TwinFile] = {}
    for number, name in enumerate(parsed.facts.get("page_images") or (), 1):
        if isinstance(name, str) and name and name not in files:
            path = names.take(f"page_{number:0{width}}{_extension(name)}")
            files[name] = TwinFile(path, asset=name, sha256=digests.get(name, ""))
    for figure in parsed.figures:
        if figure.name not in files:
            path = names.take(_safe(figure.name))
            files[figure.name] = TwinFile(path, asset=figure.name, sha256=figure.sha256)
    return tuple(files.values())


def _digest(generated_by: str, damaged: tuple[int, ...], files: Iterable[TwinFile]) -> str:
    parts = [generated_by, list(damaged), *([file.path, file.text, file.asset, file.sha256] for file in files)]
    return sha256(json.dumps(parts).encode()).hexdigest()


# --- names


class _Names:
    """Gives out names in a folder, none twice, also where case or Unicode form make no difference."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._taken: set[str] = set()

    def take(self, name: str) -> str:
        extension = _extension(name)
        stem = name.removesuffix(extension) if extension else name
        candidate, number = name, 1
        while _alike(candidate) in self._taken:
            number += 1
            candidate = shortened(stem, f"-{number}{extension}")
        self._taken.add(_alike(candidate))
        return self._prefix + candidate


def shortened(stem: str, ending: str = "") -> str:
    """The name, cut to what a file system takes; a cut one carries a hash, so that it stays distinct."""
    name = stem + ending
    if len(_bytes(name)) <= LONGEST_NAME:
        return name
    if not ending:
        ending = _extension(stem)
        stem = stem.removesuffix(ending)
    mark = "~" + sha256(_bytes(name)).hexdigest()[:12]
    room = LONGEST_NAME - len(_bytes(ending)) - len(mark)
    return _bytes(stem)[:room].decode("utf-8", "ignore") + mark + ending


def _storable(name: str) -> str:
    """A name as one path segment. A real file's name stays as it is."""
    plain = re.sub(r"[/\0]", lambda match: f"%{ord(match[0]):02X}", name)
    try:
        plain.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        plain = re.sub("[\ud800-\udfff]", "\N{REPLACEMENT CHARACTER}", plain)
    return plain.replace(".", "%2E") if plain in {".", ".."} else plain or "document"


def _safe(name: str) -> str:
    """An asset's name as a file name that is harmless everywhere: engines and foreign archives choose these."""
    kept = re.sub(r'[\x00-\x1f\x7f/\\:*?"<>|\ud800-\udfff]', "_", normalize("NFC", name)).strip(" .")
    return shortened(kept or "asset")


def _stem(name: str) -> str:
    return PurePosixPath(name).stem


def _extension(name: str) -> str:
    suffix = PurePosixPath(name).suffix
    return suffix if _EXTENSION.fullmatch(suffix) else ""


def _alike(name: str) -> str:
    return normalize("NFC", name.casefold())


def _bytes(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


def _url(path: str) -> str:
    return quote(_bytes(path), safe="/")


def _language(language: str | None) -> str:
    return language if language and _LANGUAGE.fullmatch(language) else UNKNOWN_LANGUAGE


# --- front matter


def _front_matter(facts: _Facts, parsed: Parsed) -> str:
    lines = {
        "type": TYPE,
        "source_file": facts.source_name,
        "source_sha256": facts.source_sha256,
        "language": facts.language,
        "generated_by": facts.generated_by,
        "generated_at": facts.generated_at,
    }
    text = "".join(f"{name}: {yaml_text(value)}\n" for name, value in lines.items())
    if parsed.damaged_pages:
        text += f"damaged_pages: [{', '.join(str(index + 1) for index in parsed.damaged_pages)}]\n"
    return f"---\n{text}---\n"


_UNPRINTABLE = re.compile("[^\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")


def yaml_text(value: str) -> str:
    """A YAML scalar in double quotes: JSON's escapes, which YAML shares, for all that YAML calls unprintable."""
    whole = re.sub("[\ud800-\udfff]", "\N{REPLACEMENT CHARACTER}", value)
    quoted = json.dumps(whole, ensure_ascii=False)
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", quoted)


# --- links


@cache
def _markdown() -> MarkdownIt:
    # Imported when the first link is mended: nothing that starts waits for it.
    from markdown_it import MarkdownIt

    blocks = MarkdownIt("commonmark").enable("table")
    blocks.core.ruler.enableOnly(["normalize", "block"])
    return blocks


_TOKEN = re.compile(
    r"""\\.                                     # an escaped character
      | (?P<ticks>`+)                           # a code span begins, or stray ticks
      | (?P<open>\]\(\s*<?|\]:[ \t]*<?)(?=assets/)    # a link's or reference's target
      | (?P<attribute>\b(?:src|href)\s*=\s*(?P<quote>["']))(?=assets/)""",
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)


def relink(markdown: str, links: Mapping[str, str]) -> str:
    """Point links to `assets/<name>` at `links[name]`. Other links, unknown names and code stay as they are."""
    if not links or "assets/" not in markdown:
        return markdown
    targets = _spellings(links)
    awkward = sorted((spelling for spelling in targets if re.search(r"[\s()<>]", spelling)), key=len, reverse=True)
    text = markdown.replace("\r\n", "\n").replace("\r", "\n")
    return "".join(
        part if is_code or "assets/" not in part else "".join(_relinked(part, targets, awkward))
        for is_code, part in _blocks(text)
    )


def _spellings(links: Mapping[str, str]) -> dict[str, str]:
    """Every way in which Markdown or HTML may spell an asset's name -> where it now lies."""
    targets: dict[str, str] = {}
    for name, url in links.items():
        for spelling in (_url(name), quote(_bytes(name), safe="/()"), quote(_bytes(name), safe="/!$&'()*+,;=:@")):
            targets.setdefault(spelling, url)
    for name, url in links.items():
        targets.update({name: url, escape(name): url})
    return targets


def _blocks(text: str) -> Iterator[tuple[bool, str]]:
    """The text in pieces, cut where blocks begin, each with whether it is a block of code."""
    lines = text.split("\n")
    code: set[int] = set()
    starts = {0}
    for token in _markdown().parse(text):
        if token.map:
            starts.update(token.map)
            if token.type in {"fence", "code_block"}:
                code.update(range(*token.map))
    borders = [*sorted(start for start in starts if start < len(lines)), len(lines)]
    for start, end in pairwise(borders):
        ending = "\n" if end < len(lines) else ""
        yield start in code, "\n".join(lines[start:end]) + ending


def _relinked(text: str, targets: Mapping[str, str], awkward: list[str]) -> Iterator[str]:
    done = position = 0
    stray: set[str] = set()  # runs of ticks that nothing closes; looking for each again would take quadratic time
    while match := _TOKEN.search(text, position):
        position = match.end()
        if ticks := match["ticks"]:
            closing = None if ticks in stray else re.compile(rf"(?<!`){ticks}(?!`)").search(text, position)
            position = closing.end() if closing else position
            stray.update(() if closing else (ticks,))
        elif (match["open"] or match["attribute"]) and (found := _target(text, match, targets, awkward)):
            length, url = found
            yield text[done:position] + url
            done = position = position + length
    yield text[done:]


def _target(text: str, match: re.Match[str], targets: Mapping[str, str], awkward: list[str]) -> tuple[int, str] | None:
    start = match.end() + len("assets/")
    if match["attribute"]:
        end = text.find(match["quote"], start)
    elif match["open"].endswith("<"):
        end = text.find(">", start)
    else:
        rest = re.compile(r"[^\s)]*").match(text, start)
        end = rest.end() if rest else start
        for name in awkward:
            if text.startswith(name, start) and re.compile(r"\)|\s|$").match(text, start + len(name)):
                end = start + len(name)
                break
    url = targets.get(text[start:end]) if end > start else None
    return (end - match.end(), url) if url is not None else None
