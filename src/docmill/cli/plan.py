"""`docmill plan FILE`: what would happen to a document. Nothing is parsed, nothing is sent."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from docmill.cli.failure import EXIT_FAILED, told
from docmill.cli.keys import json_option
from docmill.cli.output import Out, printable, standard_output

if TYPE_CHECKING:
    from docmill.core.routing import Foresight


@click.command(epilog="Exit codes: 0 it would be parsed, 1 it would be refused.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--engine", metavar="NAME", default="auto", show_default=True, help="Engine to plan for.")
@click.option("--stay-home", is_flag=True, help="The document must not leave the house.")
@click.option("--budget-pages", type=click.IntRange(min=0), metavar="N", help="Pages that may go to providers.")
@json_option
def plan(file: Path, engine: str, stay_home: bool, budget_pages: int | None, as_json: bool) -> None:
    """Say what would happen to FILE: type, pages, engine, slices, expected time, refusals. Nothing runs."""
    from docmill import compose, settings

    options: dict[str, Any] = {"stay_home": stay_home}
    if budget_pages is not None:
        options["budget_pages"] = budget_pages
    with told(), standard_output() as out:
        found = asyncio.run(compose.foresee(settings.load(), file, engine, options))
        if as_json:
            out.json(asdict(found))
        else:
            _show(out, file, found)
    raise SystemExit(EXIT_FAILED if found.code else 0)


def _show(out: Out, file: Path, found: Foresight) -> None:
    pages = f", {found.pages} page{'s' if found.pages > 1 else ''}" if found.pages else ""
    out.line(f"{printable(file.name)}: {found.media_type}, {found.size} bytes{pages}")
    if found.code:
        out.line(f"refused    {found.code}: {printable(found.message)}")
        return
    out.line(f"engine     {found.engine}")
    if found.then:
        out.line(f"if poor    {', '.join(found.then)}")
    for one in found.slices:
        out.line(f"slice      pages {one.first + 1} to {one.last + 1}")
    out.line(f"expected   about {found.expected_s:.0f} s" if found.expected_s >= 1 else "expected   under a second")
    for refusal in found.refusals:
        out.line(f"not        {refusal.engine}: {refusal.why}")
