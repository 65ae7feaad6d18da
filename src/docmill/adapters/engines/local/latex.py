"""LaTeX as Markdown: headings, lists, tables and marks; formulas stay as they are."""

from __future__ import annotations

import re

from ..markdown import table
from .records import block

TEX_COMMENT = re.compile(r"(?<!\\)%.*$", re.MULTILINE)
TEX_SECTION = re.compile(
    r"\\(part|chapter|section|subsection|subsubsection|paragraph|title|caption)\*?(?:\[[^\]\n]{0,300}\])?\{"
)
TEX_LEVELS = {"title": 1, "part": 1, "chapter": 1, "section": 2, "subsection": 3, "subsubsection": 4, "paragraph": 5}
TEX_ENVIRONMENT = re.compile(r"\\(begin|end)\{([\w*]{1,60})\}(?:\[[^\]\n]{0,300}\])?")
TEX_VERBATIM = ("verbatim", "lstlisting", "minted", "alltt")
TEX_MATHS = ("equation", "align", "gather", "multline", "eqnarray", "displaymath", "math", "alignat", "flalign")
TEX_TABLES = ("tabular", "tabularx", "longtable", "tabular*", "array")
TEX_MARKS = {"textbf": "**", "emph": "*", "textit": "*", "texttt": "`", "underline": "", "textsc": "", "mbox": ""}
TEX_COMMAND = re.compile(r"\\(textbf|emph|textit|texttt|underline|textsc|mbox|footnote|url)\{([^{}]{0,2000})\}")
TEX_HREF = re.compile(r"\\href\{([^{}\s]{1,1000})\}\{([^{}]{1,500})\}")
TEX_DROPPED = re.compile(
    r"\\(?:label|vspace|hspace|usepackage|documentclass|bibliographystyle|includegraphics|centering|maketitle|noindent"
    r"|newpage|clearpage|pagestyle|setlength|input|include|hline|toprule|midrule|bottomrule|small|large|Large|bfseries"
    r"|itshape|tableofcontents|appendix|newcommand|renewcommand|begingroup|endgroup|par|medskip|bigskip|smallskip"
    r"|cline|cmidrule|thispagestyle|hfill|vfill|footnotesize|normalsize|scriptsize|raggedright)\b\*?"
    r"(?:\[[^\]\n]{0,300}\]){0,2}(?:\{[^{}\n]{0,500}\}){0,2}"
)
TEX_REFERENCE = re.compile(
    r"\\(?:cite[a-z]{0,10}|ref|eqref|pageref|autoref|cref|Cref)\*?(?:\[[^\]\n]{0,200}\]){0,2}\{([^{}\n]{1,500})\}"
)
TEX_ESCAPES = {
    r"\%": "%",
    r"\&": "&",
    r"\_": "\\_",
    r"\#": "#",
    r"\$": "\\$",
    r"\{": "{",
    r"\}": "}",
    "~": " ",
    r"\\": "  \n",
}
TEX_ESCAPE = re.compile(r"\\\\|\\[%&_#${}]|~")
TEX_ITEM = re.compile(r"\\item(?:\[([^\]\n]{0,300})\])? *")
TEX_MACRO = re.compile(r"\\(?:(?:re)?newcommand\*?\{?|def)\\([A-Za-z]{1,60})\}?\{([^{}#\n]{1,100})\}")
TEX_NAME = re.compile(r"\\([A-Za-z]{1,60})(?:\{\}|\\ )?")
TEX_ROW_END = re.compile(r"\\\\(?:\[[^\]\n]{0,40}\])?")


def latex(text: str) -> str:
    out: list[str] = []
    text = with_macros(text)
    start = text.find("\\begin{document}")
    preamble, body = (text[:start], text[start + 16 :]) if start >= 0 else ("", text)
    if title := re.search(r"\\title\{([^{}]{1,500})\}", preamble):
        out += [f"# {tex_inline(title[1])}", ""]
    end = body.find("\\end{document}")
    body = body[:end] if end >= 0 else body
    at, lists = 0, 0
    unended: set[str] = set()
    for found in TEX_ENVIRONMENT.finditer(body):
        if found.start() < at:
            continue
        out.append(tex_text(body[at : found.start()], lists))
        at = found.end()
        name = found[2].rstrip("*")
        if found[1] == "end":
            lists -= name in ("itemize", "enumerate", "description") and lists > 0
            continue
        # An end that is missing is looked for once: otherwise many beginnings take quadratic time.
        stop = -1 if found[2] in unended else body.find(f"\\end{{{found[2]}}}", at)
        if stop < 0:
            unended.add(found[2])
        if name in TEX_VERBATIM and stop >= 0:
            out += ["", block(body[at:stop], ""), ""]
            at = stop
        elif name in TEX_MATHS and stop >= 0:
            out += ["", f"$$\n{TEX_COMMENT.sub('', body[at:stop]).strip()}\n$$", ""]
            at = stop
        elif found[2] in TEX_TABLES and stop >= 0:
            out += ["", tex_table(body[at:stop]), ""]
            at = stop
        elif name in ("itemize", "enumerate", "description"):
            lists += 1
        elif name == "abstract":
            out += ["", "## Abstract", ""]
    out.append(tex_text(body[at:], lists))
    return "\n".join(out)


def with_macros(text: str) -> str:
    """Commands that the document defines for a few words of its own are replaced by them."""
    known = {found[1]: found[2] for found in TEX_MACRO.finditer(text)}
    if not known:
        return text
    return TEX_NAME.sub(lambda found: known.get(found[1], found[0]), TEX_MACRO.sub("", text))


def tex_text(text: str, lists: int) -> str:
    text = TEX_COMMENT.sub("", text)
    text = TEX_ITEM.sub(lambda found: f"\n{'    ' * max(0, lists - 1)}- {found[1] + ' ' if found[1] else ''}", text)
    parts: list[str] = []
    at = 0
    for found in TEX_SECTION.finditer(text):
        if found.start() < at:
            continue
        end = closing_brace(text, found.end())
        parts.append(tex_inline(text[at : found.start()]))
        title = " ".join(tex_inline(text[found.end() : end]).split())
        level = TEX_LEVELS.get(found[1])
        parts.append(f"\n\n{'#' * level} {title}\n\n" if level else f"\n\n*{title}*\n\n")
        at = end + 1
    parts.append(tex_inline(text[at:]))
    return "".join(parts)


def closing_brace(text: str, at: int) -> int:
    """Where the brace ends that was opened before *at*; titles are short."""
    depth = 1
    for place in range(at, min(len(text), at + 2000)):
        if text[place] == "{":
            depth += 1
        elif text[place] == "}":
            depth -= 1
            if not depth:
                return place
    return min(len(text), at + 2000)


def tex_inline(text: str) -> str:
    """Commands that are marks become marks; formulas stay as they are."""
    pieces = re.split(r"(\$\$?[^$]{1,5000}\$\$?)", text)
    return "".join(piece if number % 2 else tex_words(piece) for number, piece in enumerate(pieces))


def tex_words(text: str) -> str:
    if "\\" in text:
        text = TEX_HREF.sub(r"[\2](\1)", text)
        text = TEX_REFERENCE.sub(r"[\1]", text)
        text = TEX_COMMAND.sub(tex_mark, TEX_COMMAND.sub(tex_mark, text))
        text = TEX_DROPPED.sub("", text)
    text = TEX_ESCAPE.sub(lambda found: TEX_ESCAPES[found[0]], text)
    text = text.replace("``", "“").replace("''", "”").replace("---", "—").replace("--", "–")
    return re.sub(r"\\[A-Za-z]{1,40}\*?(?:\{\})?|(?<!\\)[{}]", " ", text) if "\\" in text or "{" in text else text


def tex_mark(found: re.Match[str]) -> str:
    name, inner = found[1], found[2].strip()
    if name == "footnote":
        return f" ({inner})"
    if name == "url":
        return f"<{inner}>"
    return f"{TEX_MARKS[name]}{inner}{TEX_MARKS[name]}" if inner else ""


def tex_table(text: str) -> str:
    text = TEX_COMMENT.sub("", text)
    if text.lstrip().startswith("{"):
        start = text.index("{")
        text = text[closing_brace(text, start + 1) + 1 :]
        if text.lstrip().startswith("{"):
            start = text.index("{")
            text = text[closing_brace(text, start + 1) + 1 :]
    rows = [
        [" ".join(tex_inline(cell).split()) for cell in re.split(r"(?<!\\)&", row)] for row in TEX_ROW_END.split(text)
    ]
    return table([row for row in rows if any(row)])
