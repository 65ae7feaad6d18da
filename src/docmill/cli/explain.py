"""`docmill explain`: what a code means and what to do next."""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import groupby
from typing import Any

import click

from docmill.cli.output import Out, standard_output
from docmill.core.catalogue import LANGUAGES, Entry, entries, entry, suggest

# language -> next step, area, HTTP status, retrying helps, yes, no
LABELS: dict[str, tuple[str, str, str, str, str, str]] = {
    "en": ("Next step", "Area", "HTTP status", "Retrying helps", "yes", "no"),
    "de": ("Nächster Schritt", "Bereich", "HTTP-Status", "Wiederholen hilft", "ja", "nein"),
    "zh": ("下一步", "类别", "HTTP 状态", "重试有用", "是", "否"),
}


@click.command(epilog="Exit codes: 0 explained, 2 there is no such code.")
@click.argument("code", required=False)
@click.option("--lang", type=click.Choice(LANGUAGES), help="Language; by default that of LC_ALL or LANG.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object per code.")
def explain(code: str | None, lang: str | None, as_json: bool) -> None:
    """Say what an error code means and what to do next. Without CODE, list all codes by area."""
    lang = lang or language(os.environ)
    chosen = entries() if code is None else (_known(code),)
    with standard_output() as out:
        if as_json:
            for one in chosen:
                out.json(_as_dict(one, lang))
        elif code is None:
            _list(out, chosen, lang)
        else:
            _show(out, chosen[0], lang)


def language(env: Mapping[str, str]) -> str:
    """The language that the locale asks for, if the catalogue speaks it; else English."""
    locale = next((env[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if env.get(name)), "")
    spoken = locale.replace("-", "_").partition("_")[0].partition(".")[0].lower()
    return spoken if spoken in LANGUAGES else "en"


def _known(code: str) -> Entry:
    if found := entry(code):
        return found
    near = suggest(code)
    hint = f"Did you mean {' or '.join(near)}?" if near else "'docmill explain' lists all codes."
    raise click.UsageError(f"There is no code '{code}'. {hint}")


def _as_dict(one: Entry, lang: str) -> dict[str, Any]:
    sentence, next_step = one.text[lang]
    return {
        "code": one.code,
        "area": one.area,
        "status": one.status,
        "retryable": one.retryable,
        "lang": lang,
        "sentence": sentence,
        "next_step": next_step,
    }


def _list(out: Out, chosen: tuple[Entry, ...], lang: str) -> None:
    width = max(len(one.code) for one in chosen)
    for area, group in groupby(chosen, key=lambda e: e.area):
        out.line(out.style(area, bold=True))
        for one in group:
            out.line(f"  {one.code:<{width}}  {one.text[lang][0]}")


def _show(out: Out, one: Entry, lang: str) -> None:
    next_step, area, status, retry, yes, no = LABELS[lang]
    sentence, what_to_do = one.text[lang]
    out.line(f"{out.style(one.code, bold=True)}: {sentence}")
    out.line(f"{next_step}: {what_to_do}")
    out.line(f"{area}: {one.area}")
    if one.status:
        out.line(f"{status}: {one.status}")
    out.line(f"{retry}: {yes if one.retryable else no}")
