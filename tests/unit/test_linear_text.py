"""No pattern and no text function takes more than linear time, whatever the text: a stall of one is a stall of all.

Every pattern that a module of docmill compiles, and every literal pattern of a `re` call, is run over texts of one
repeated pair of hostile characters, or of what the pattern itself begins with. Text that grows fourfold may take about
four times as long; quadratic time would take sixteen times.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import docmill
from docmill.adapters.engines import sniff
from docmill.adapters.engines.local.asciidoc import asciidoc
from docmill.adapters.engines.local.compact import compact_tables
from docmill.adapters.engines.local.latex import latex
from docmill.adapters.engines.local.mail import messages
from docmill.adapters.engines.local.org import org
from docmill.adapters.engines.local.records import calendar, subtitles
from docmill.adapters.engines.local.rst import rst
from docmill.adapters.engines.local.rtf import plain_text
from docmill.adapters.engines.local.xml import without_entities
from docmill.adapters.engines.markdown import clean, coverage, disarm, tidy
from docmill.core.links import replace_targets, without_images
from docmill.core.parsed import Page
from docmill.core.routing import quality
from docmill.work.report_pages import Relinking

SOURCE = Path(docmill.__file__).parent
SIGNS = '[](!<"`*|-\\ \na1.:'
PAIRS = [first + second for first in SIGNS for second in SIGNS]
METHODS = frozenset({"match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer"})
SMALL, GROWTH = 4096, 4
SLOW_S = 0.0015
"""Linear patterns take a fraction of this for SMALL characters."""
MAX_RATIO = 9

BOUNDED = {
    "docmill.adapters.engines.local.numbers.TOKEN": "formats of 200 characters",
    "adapters/engines/local/numbers.py:section": "formats of 200 characters",
    "docmill.adapters.engines.local.numbers.QUOTED": "formats of 200 characters",
    "docmill.adapters.engines.local.web.LANG": "the first 4,096 characters, in the parser's process",
    "docmill.adapters.engines.local.web.META_CHARSET": "the first 4,096 bytes, in the parser's process",
    "docmill.adapters.engines.local.web.BODY": "in the parser's process, within its time",
    "docmill.adapters.engines.local.web.TOP_HEADING": "in the parser's process, within its time",
    "docmill.adapters.engines.local.web.NAVIGATION": "in the parser's process, within its time",
    "docmill.adapters.engines.local.grids._CELL": "tables that docvortex wrote, in the parser's process",
    "docmill.adapters.engines.local.grids._ROW": "tables that docvortex wrote, in the parser's process",
    "docmill.adapters.engines.local.vortex.DETAILS": "what docvortex wrote, in the parser's process",
    "docmill.adapters.engines.local.office.SPOKEN": "what docvortex wrote, in the parser's process",
    "docmill.adapters.providers.chat._SECRETS": "the first characters of an error message (MAX_READ)",
}
"""Patterns that need more, and why no text is long enough, or where they cannot stall the service."""


def calls() -> Iterator[tuple[Path, str, ast.Call]]:
    """Every call of a method that patterns have, with the function around it."""
    for path in SOURCE.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for outer in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)):
            for node in ast.walk(outer):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
                    yield path, outer.name, node


@cache
def collect() -> dict[str, tuple[re.Pattern[Any], set[str]]]:
    """Patterns by where they stand, and how they are used: an anchored one need not be quick to search with."""
    methods: dict[str, set[str]] = {}
    found: dict[str, tuple[re.Pattern[Any], set[str]]] = {}
    for path, function, node in calls():
        owner, method = node.func.value, node.func.attr  # type: ignore[attr-defined]
        if isinstance(owner, ast.Name) and owner.id == "re":
            if isinstance(node.args[0], ast.Constant):
                flags = re.IGNORECASE if "IGNORECASE" in ast.unparse(node) else 0
                place = f"{path.relative_to(SOURCE).as_posix()}:{function}"
                found[place] = (re.compile(node.args[0].value, flags), {method})
        else:
            name = owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", "")
            methods.setdefault(name, set()).add(method)
    for info in pkgutil.walk_packages(docmill.__path__, "docmill."):
        if info.name.startswith("docmill.loaders") or info.name.endswith("__main__"):
            continue
        module = importlib.import_module(info.name)
        for name, value in vars(module).items():
            for one in value if isinstance(value, tuple | list) else [value]:
                for pattern in one if isinstance(one, tuple) else [one]:
                    if isinstance(pattern, re.Pattern):
                        found.setdefault(f"{info.name}.{name}", (pattern, methods.get(name, {"search"})))
    return found


def openings(pattern: str) -> set[str]:
    """What the pattern begins with, as far as it is letters: `<table>`, `](assets/`."""
    literal = re.match(r"(?:\\[^\w\s]|[\w<>/:!\"'= -])+", pattern)
    text = literal[0].replace("\\", "") if literal else ""
    return {text[:end] + more for end in range(1, len(text) + 1) for more in ("", ">", "a")}


def seconds(run: Callable[[], object]) -> float:
    began = time.thread_time()
    run()
    return time.thread_time() - began


def use(pattern: re.Pattern[Any], methods: set[str], text: Any) -> None:
    if methods <= {"match", "fullmatch"}:
        for method in methods:
            getattr(pattern, method)(text)
    else:
        for _ in pattern.finditer(text):
            pass


def is_slow(pattern: re.Pattern[Any], methods: set[str], unit: str) -> bool:
    count = SMALL // len(unit)
    small: Any = unit * count
    if isinstance(pattern.pattern, bytes):
        small = small.encode("latin-1")
    first = seconds(lambda: use(pattern, methods, small))
    if first < SLOW_S:
        return False
    first = min(first, seconds(lambda: use(pattern, methods, small)))
    return first > SLOW_S / 2 and seconds(lambda: use(pattern, methods, small * GROWTH)) > MAX_RATIO * first


def test_no_pattern_takes_quadratic_time() -> None:
    found = collect()
    assert len(found) > 200
    slow = {}
    for place, (pattern, methods) in found.items():
        if place not in BOUNDED:
            text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
            units = [*PAIRS, *openings(text)]
            slow[place] = next((unit for unit in units if is_slow(pattern, methods, unit)), None)
    assert {} == {place: unit for place, unit in slow.items() if unit is not None}


def test_the_exceptions_exist() -> None:
    assert set() == set(BOUNDED) - set(collect())


def judge(text: str) -> object:
    return quality((Page(0, text),))


FUNCTIONS: dict[str, Callable[[str], object]] = {
    "relinked": lambda text: Relinking({"a.png": "b.png"})(text),
    "replace_targets": lambda text: replace_targets(text, lambda _: None),
    "without_images": without_images,
    "quality": judge,
    "clean": clean,
    "tidy": tidy,
    "disarm": disarm,
    "coverage": lambda text: coverage(text, text),
    "text_type": lambda text: sniff.text_type(text.encode()[: sniff.HEAD], "a.html"),
    "text_type_unnamed": lambda text: sniff.text_type(text.encode()[: sniff.HEAD], ""),
}
READERS: dict[str, Callable[[str], object]] = {
    "rst": rst,
    "org": org,
    "asciidoc": asciidoc,
    "latex": latex,
    "subtitles": subtitles,
    "calendar": calendar,
    "plain_text": lambda text: plain_text(text.encode()),
    "compact_tables": compact_tables,
    "without_entities": lambda text: without_entities(text.encode()),
    "messages": lambda text: list(messages(text.encode())),
}
"""They run in the parser's process, line by line."""
HOSTILE = [
    "[",
    "![",
    "[a](",
    "![a](",
    "](",
    "](a ",
    '](a "',
    "<a",
    "![](data:",
    "[](javascript:(",
    "\n ",
    "- ",
    "[ ",
    "`",
    "\\begin{equation}",
    "\\section{",
    "{\\*",
    "<td><p>",
    "| ",
    "* ",
    ".. a::\n ",
    "+-",
    "From a\n",
    "<!DOCTYPE [",
    "&a;",
    "$",
    "::\n",
]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_megabyte_of_anything_is_quick(name: str) -> None:
    for unit in HOSTILE:
        text = unit * (1024**2 // len(unit))
        took = min(seconds(lambda text=text: FUNCTIONS[name](text)) for _ in range(2))  # type: ignore[misc]
        assert took < 0.5, f"{unit!r} took {took:.2f} s"


@pytest.mark.parametrize("name", READERS)
def test_a_megabyte_of_anything_is_read_in_linear_time(name: str) -> None:
    for unit in HOSTILE:
        text = unit * (1024**2 // len(unit))
        took = min(seconds(lambda text=text: READERS[name](text)) for _ in range(2))  # type: ignore[misc]
        assert took < 2, f"{unit!r} took {took:.2f} s"


def test_links_are_still_found() -> None:
    text = '![a](x/a.png) [b](<a.png>) [c](a.png "t") ![d [e](a.png) [f](other.png) [g](a[1].png)'
    mended = Relinking({"x/a.png": "s.png", "a[1].png": "t.png"})(text)

    want = '![a](assets/s.png) [b](assets/s.png) [c](assets/s.png "t") ![d [e](assets/s.png) [f](other.png) '
    assert f"{want}[g](assets/t.png)" == mended
    assert "a  b" == without_images("a ![x](y) b")
