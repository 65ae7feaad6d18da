"""FictionBook, DocBook, JATS, OPML and other XML: a map to HTML, and from there the way of web pages."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from html import escape as html_escape
from typing import Any

from ..markdown import escape
from . import web, xml
from .job import Job

INLINE = {
    "emphasis": "em", "italic": "em", "i": "em", "em": "em", "bold": "strong", "strong": "strong", "b": "strong",
    "literal": "code", "code": "code", "monospace": "code", "command": "code", "filename": "code", "varname": "code",
    "function": "code", "option": "code", "sub": "sub", "subscript": "sub", "sup": "sup", "superscript": "sup",
    "strikethrough": "del", "quote": "q",
}  # fmt: skip
TRANSPARENT = frozenset(
    (
        *("sc", "span", "phrase", "styled-content", "named-content", "citation", "surname", "given-names", "year"),
        *("firstname", "lastname", "first-name", "last-name", "middle-name", "xref", "citetitle", "application"),
        *("productname", "acronym", "abbrev", "trademark", "inline", "b-claim-ref", "claim-ref", "figref", "u", "o"),
        *("text", "string-name", "name", "volume", "issue", "fpage", "lpage", "source", "article-title-in"),
        *("month", "day", "pub-id", "replaceable", "userinput", "systemitem", "property", "smallcaps", "nobr"),
    )
)
"""Inside a line, without a mark of their own. A space stands between them where the file has none."""
SPACED = frozenset(
    ("surname", "given-names", "firstname", "lastname", "first-name", "last-name", "middle-name", "name")
)
SECTIONS = frozenset(
    (
        *("section", "sec", "chapter", "article", "book", "part", "appendix", "body", "preface", "abstract", "front"),
        *("sect1", "sect2", "sect3", "sect4", "sect5", "refsect1", "refsect2", "simplesect", "app", "ack", "back"),
        *("glossary", "bibliography", "ref-list", "description-section", "boxed-text", "example", "sidebar", "poem"),
    )
)
TITLES = frozenset(
    ("title", "heading", "head", "bridgehead", "article-title", "book-title", "invention-title", "subtitle")
)
LISTS = {
    "itemizedlist": "ul", "ul": "ul", "simplelist": "ul", "list": "ul", "orderedlist": "ol", "ol": "ol",
    "procedure": "ol", "variablelist": "ul", "def-list": "ul", "glosslist": "ul", "ref-list": "ul", "calloutlist": "ol",
}  # fmt: skip
ITEMS = frozenset(
    ("listitem", "li", "list-item", "member", "step", "varlistentry", "def-item", "glossentry", "ref", "callout")
)
CODE = frozenset(("programlisting", "screen", "literallayout", "synopsis", "preformat", "pre", "code-block"))
QUOTES = frozenset(("blockquote", "epigraph", "cite", "disp-quote", "annotation"))
MAX_FIELD_CHARACTERS = 80
MAX_HEADING = 6


def read(job: Job) -> None:
    root = xml.parse(job.source.read_bytes())
    job.language = next((value for key, value in root.attrib.items() if key.endswith("}lang")), None)
    if xml.name_of(root) == "opml":
        job.add_page(0, outline(job, root))
    else:
        html = "".join(Writer(root).write())
        job.add_page(0, web.convert(job, f"<html><body>{html}</body></html>", page=0))
    job.progress(1, 1)


def outline(job: Job, root: Any) -> str:
    """OPML has its text in attributes."""
    title = next((one.text for one in root.iter() if xml.name_of(one) == "title" and one.text), "")
    job.title = title or None
    lines = [f"# {escape(title)}", ""] if title else []
    body = next((one for one in root if xml.name_of(one) == "body"), None)
    stack = [(one, 0) for one in reversed(body)] if body is not None else []
    while stack:
        one, depth = stack.pop()
        said = one.get("text") or one.get("title") or ""
        link = one.get("htmlUrl") or one.get("xmlUrl") or one.get("url") or ""
        label = escape(said or link)
        note = f" — {escape(one.get('_note'))}" if one.get("_note") else ""
        target = f"[{label}](<{link}>)" if link.startswith(("http://", "https://")) and "\n" not in link else label
        if label:
            lines.append(f"{'    ' * min(depth, 20)}- {target}{note}")
        stack.extend((child, depth + 1) for child in reversed(one))
    return "\n".join(lines)


class Writer:
    """HTML of a tree, without recursion: a file decides how deep it is."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self.pictures = {one.get("id", ""): one for one in root.iter() if xml.name_of(one) == "binary" and one.text}
        self.level = 0
        self.out: list[str] = []

    def write(self) -> list[str]:
        stack: list[Any] = [self.root]
        while stack:
            step = stack.pop()
            if callable(step):
                step()
                continue
            if isinstance(step, str):
                self.out.append(html_escape(step, quote=False))
                continue
            if step is not self.root and step.tail:
                stack.append(step.tail)
            name = xml.name_of(step)
            if not name or name in xml.HIDDEN - TITLES:
                continue
            before, after = self.marks(step, name)
            self.out.append(before)
            if after:
                stack.append(self.closing(after))
            if name in CODE:
                self.out.append(html_escape("".join(step.itertext()), quote=False))
                continue
            stack.extend(reversed(step))
            if step.text:
                stack.append(step.text)
        return self.out

    def closing(self, after: str) -> Callable[[], None]:
        def close() -> None:
            self.out.append(after)
            if after == "</section>":
                self.level -= 1

        return close

    def marks(self, element: Any, name: str) -> tuple[str, str]:
        """What stands before and after an element's content."""
        parent = xml.name_of(element.getparent()) if element.getparent() is not None else ""
        if name in ("table", "informaltable", "tgroup", "thead", "tbody", "tfoot", "tr", "row", "td", "th", "entry"):
            return table_marks(element, name, parent)
        if name in SECTIONS:
            self.level += 1
            return "<section>", "</section>"
        if name in TITLES:
            return self.title_marks(parent)
        if name in CODE:
            return "<pre><code>", "</code></pre>"
        if name in INLINE:
            return f"<{INLINE[name]}>", f"</{INLINE[name]}>"
        if name in ITEMS:
            return "<li>", "</li>"
        if name in LISTS and (name != "list" or element.find("{*}list-item") is not None):
            return f"<{LISTS[name]}>", f"</{LISTS[name]}>"
        if name in QUOTES:
            return "<blockquote>", "</blockquote>"
        if name in ("a", "ulink", "link", "ext-link", "uri"):
            return link_marks(element)
        if name in ("image", "graphic", "imagedata", "inline-graphic"):
            return self.picture(element), ""
        if name in ("empty-line", "br", "break"):
            return "<br>", ""
        if name == "term" or (name == "label" and parent != "sec"):
            return "<strong>", "</strong> "
        if name in TRANSPARENT:
            return (" ", " ") if name in SPACED else ("", "")
        if name in ("p", "para") and parent in TITLES:
            return " ", " "
        if name in ("p", "para", "simpara", "v", "subtitle", "attrib", "caption"):
            return "<p>", "</p>"
        if is_field(element, parent):
            return "", " "
        return "<div>", "</div>"

    def title_marks(self, parent: str) -> tuple[str, str]:
        if parent in ("table-wrap", "fig", "caption", "table", "figure", "example", "note", "ref", "element-citation"):
            return "<p><strong>", "</strong></p>"
        if parent in ("mixed-citation", "nlm-citation", "product", "related-object", "citation"):
            return "<em>", "</em> "
        level = min(max(self.level, 1), MAX_HEADING)
        return f"<h{level}>", f"</h{level}>"

    def picture(self, element: Any) -> str:
        target = next((value for key, value in element.attrib.items() if key.endswith("href")), "")
        found = self.pictures.get(target.lstrip("#"))
        if found is None:
            return ""
        data = "".join((found.text or "").split())
        try:
            base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            return ""
        kind = found.get("content-type", "image/jpeg")
        return f'<img alt="" src="data:{html_escape(kind)};base64,{data}">'


def is_field(element: Any, parent: str) -> bool:
    """A short value beside others of a record: they stand in one line."""
    if len(element) or parent in SECTIONS or len(element.text or "") > MAX_FIELD_CHARACTERS:
        return False
    record = element.getparent()
    return record is not None and all(not len(one) for one in record)


def table_marks(element: Any, name: str, parent: str) -> tuple[str, str]:
    if name == "tgroup":
        return "", ""
    if name in ("td", "th", "entry"):
        tag = "th" if name == "th" or is_in_head(element) else "td"
        spans = "".join(
            f' {kind}="{value}"' for kind in ("colspan", "rowspan") if (value := element.get(kind, "")).isdecimal()
        )
        return f"<{tag}{spans}>", f"</{tag}>"
    tag = {"informaltable": "table", "row": "tr"}.get(name, name)
    if tag == "table" and parent == "table":
        return "", ""
    return f"<{tag}>", f"</{tag}>"


def is_in_head(element: Any) -> bool:
    row = element.getparent()
    return row is not None and row.getparent() is not None and xml.name_of(row.getparent()) == "thead"


def link_marks(element: Any) -> tuple[str, str]:
    target = next((value for key, value in element.attrib.items() if key.endswith(("href", "url"))), "")
    if not target.startswith(("http://", "https://", "mailto:")):
        return "", ""
    return f'<a href="{html_escape(target)}">', "</a>"
