"""Keep the console's message catalogues: `python tools/messages.py` collects, merges and compiles; --check only looks.

Babel is needed here and in the tests, never at run time.
"""

from __future__ import annotations

import sys
from io import BytesIO
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.extract import extract_from_dir
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po

CONSOLE = Path(__file__).parents[1] / "src" / "docmill" / "console"
METHODS = [("**.py", "python"), ("templates/**.html", "jinja2.ext:babel_extract")]
KEYWORDS = {"_": None, "gettext": None, "ngettext": (1, 2), "noop": None, "words": None, "count": (1, 2)}
OPTIONS = {"templates/**.html": {"trimmed": "false", "newstyle_gettext": "true"}}
LANGUAGES = ("de", "zh")


def collected() -> Catalog:
    """Every message of the console, as its source says it now."""
    found = Catalog(project="docmill", header_comment="")
    for name, _line, message, comments, context in extract_from_dir(
        CONSOLE, METHODS, OPTIONS, keywords=KEYWORDS, strip_comment_tags=True
    ):
        found.add(message, None, [(name, 0)], auto_comments=comments, context=context)
    return found


def kept(language: str) -> Catalog:
    with po(language).open("rb") as file:
        return read_po(file, locale=language)


def compiled(catalogue: Catalog) -> bytes:
    target = BytesIO()
    write_mo(target, catalogue)
    return target.getvalue()


def written(catalogue: Catalog) -> str:
    """The .po text. Of its header only what gettext reads: dates and placeholders would change with every run."""
    target = BytesIO()
    write_po(target, catalogue, width=120, no_location=True, sort_output=True)
    text = target.getvalue().decode()
    head, _, rest = text.partition("\n\n")
    needed = ("Language:", "Plural-Forms:", "MIME-Version:", "Content-")
    lines = [line for line in head.splitlines() if line.startswith(tuple(f'"{name}' for name in needed))]
    return "\n".join(['msgid ""', 'msgstr ""', *lines, "", rest])


def po(language: str) -> Path:
    return CONSOLE / "messages" / language / "LC_MESSAGES" / "console.po"


def missing(language: str) -> list[str]:
    """Messages that have no translation, or that are doubtful."""
    catalogue = kept(language)
    found = []
    for message in collected():
        ours = catalogue.get(message.id, message.context) if message.id else None
        if message.id and (ours is None or ours.fuzzy or not all(_texts(ours.string))):
            found.append(str(message.id))
    return found


def _texts(string: object) -> tuple[object, ...]:
    return string if isinstance(string, tuple) else (string,)


def main() -> None:
    for language in LANGUAGES:
        path = po(language)
        catalogue = kept(language) if path.exists() else Catalog(locale=language, project="docmill")
        catalogue.update(collected(), no_fuzzy_matching=True)
        catalogue.obsolete.clear()
        path.write_text(written(catalogue), encoding="utf-8")
        path.with_suffix(".mo").write_bytes(compiled(kept(language)))
        print(f"{language}: {len(missing(language))} without a translation")


if __name__ == "__main__":
    if "--check" in sys.argv:
        lacking = [f"{language}: {one}" for language in LANGUAGES for one in missing(language)]
        print("\n".join(lacking))
        raise SystemExit(bool(lacking))
    main()
