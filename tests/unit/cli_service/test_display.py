"""Tables, times and the live display."""

from __future__ import annotations

import io

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from docmill.cli.api import Event
from docmill.cli.board import Live, Plain, shortened
from docmill.cli.following import told_event, told_task
from docmill.cli.output import Out
from docmill.cli.table import write_fields, write_table


def written(write: object, *args: object) -> str:
    stream = io.BytesIO()
    write(Out(stream, colour=False), *args)  # type: ignore[operator]
    return stream.getvalue().decode()


def test_columns_line_up_also_for_wide_characters() -> None:
    assert "FILE      PAGES\n报告.pdf  3\na.txt     -\n" == written(
        write_table, ("FILE", "PAGES"), [("报告.pdf", 3), ("a.txt", None)]
    )


def test_a_name_cannot_drive_the_terminal() -> None:
    assert "\x1b" not in written(write_table, ("FILE",), [("a\x1b[31m",)])


def test_empty_fields_are_left_out() -> None:
    assert "name  x\n" == written(write_fields, {"name": "x", "error": None, "tags": []})


def test_events_in_a_few_words() -> None:
    def event(kind: str, **data: object) -> str:
        return told_event(Event(1, kind, data, ""))

    assert "page 3 of 12" == event("progress", pages_done=3, pages_total=12, progress=20)
    assert "3 pages" == event("progress", pages_done=3, pages_total=None)
    assert "progress" == event("progress", pages_done=None, pages_total=None)
    assert "page 3 of 12" == event("progress", progress=20, phase="extract_text", message="page 3 of 12")
    assert "parse started" == event("started", stage="parse")
    assert "failed: parse_timeout" == event("failed", code="parse_timeout")
    assert "parse succeeded" == event("stage_succeeded", stage="parse")
    assert "given back" == event("given_back")


def test_a_failed_task_shows_its_code() -> None:
    task = {
        "task_id": 4,
        "filename": "a.pdf",
        "status": "failed",
        "error": "The file is empty.",
        "metadata": {"error_code": "document_empty"},
    }

    assert "failed     a.pdf  (task 4): document_empty: The file is empty." == told_task(
        Out(io.BytesIO(), colour=False), task
    )


def test_the_live_display_shows_what_runs_and_forgets_what_ended() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.fields[note]}"))
    with Progress(*columns, console=console, auto_refresh=False) as progress:
        live = Live(progress, Out(io.BytesIO(), colour=False), lines=True)
        live.show("[red]a.pdf", 1, 4, "page 1 of 4")
        live.show("[red]a.pdf", 2, 4, "page 2 of 4")
        progress.refresh()
        live.hide("[red]a.pdf")
        live.hide("[red]a.pdf")

    assert "[red]a.pdf" in screen.getvalue()
    assert "page 2 of 4" in screen.getvalue()
    assert [] == progress.tasks


def test_plain_lines_elsewhere() -> None:
    stream = io.BytesIO()
    Plain(Out(stream, colour=False), lines=True).line("done")
    Plain(Out(stream, colour=False), lines=False).line("hidden")

    assert b"done\n" == stream.getvalue()


def test_a_long_path_keeps_its_end() -> None:
    assert "…/" + "b" * 34 + ".pdf" == shortened("a/" * 30 + "b" * 34 + ".pdf")
