"""How many workers, and which database, a load needs, and what breaks first: a model fed with measured figures.

python bench/capacity.py docs/reference/capacity.md
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from math import ceil
from pathlib import Path

HOUR = 3600.0
LOADS = (10, 1_000, 100_000)
BUSY = 0.7
"""Nothing is planned to be busier than this: loads come in waves."""


@dataclass(frozen=True)
class Figures:
    """Measured by the benchmarks on two shared cores; see docs/reference/benchmarks.md for how."""

    parse_cpu_s: float = 1.3
    """Processor seconds of a document, everything included: the samples, of which two are scans (bench/figures.py)."""
    ledger_tasks_per_s: float = 200.0
    """Durable tasks that one small PostgreSQL takes to their end: assumed, until `bench/tasks.py` says it of yours."""
    object_calls: float = 9.9
    """Puts, reads and stats of one document."""
    object_mb: float = 0.05
    """Of one sample in the store, source and artifacts (bench/figures.py). Yours are larger."""
    row_kb: float = 6.7
    """Bytes of one task in the database, with its attempts, events and indexes."""
    requests_per_document: float = 8.0
    """Upload, submit, and a few looks."""
    requests_per_s: float = 620.0
    """What one API process answers on one core."""


@dataclass(frozen=True)
class Plan:
    load: int
    worker_cores: int
    workers: int
    api_processes: int
    database: str
    database_share: float
    object_calls_per_s: float
    gb_a_month: float
    first_limit: str


def plan(load: int, figures: Figures, *, cores_per_worker: int = 4) -> Plan:
    """What *load* documents an hour need."""
    per_s = load / HOUR
    cores = max(1, ceil(per_s * figures.parse_cpu_s / BUSY))
    share = per_s / figures.ledger_tasks_per_s
    limits = {
        "processor time of the workers (add workers)": per_s * figures.parse_cpu_s / cores,
        "the database's commits (a larger one, or faster disks)": share,
        "requests of one API process (add one)": per_s * figures.requests_per_document / figures.requests_per_s,
    }
    return Plan(
        load=load,
        worker_cores=cores,
        workers=ceil(cores / cores_per_worker),
        api_processes=max(
            1 if load < 100 else 2, ceil(per_s * figures.requests_per_document / figures.requests_per_s / BUSY)
        ),
        database=_database(load, share),
        database_share=share,
        object_calls_per_s=per_s * figures.object_calls,
        gb_a_month=load * 24 * 30 * figures.object_mb / 1024,
        first_limit=max(limits, key=lambda name: limits[name]),
    )


def _database(load: int, share: float) -> str:
    if load < 100:
        return "SQLite: embedded, one process, no servers"
    cores = max(1, ceil(share / BUSY))
    return f"PostgreSQL, {max(2, cores)} cores, SSD" + (", with a standby" if load >= 10_000 else "")


def page(figures: Figures) -> str:
    rows = "\n".join(
        f"| {one.load:,} | {one.worker_cores} ({one.workers} × 4 cores) | {one.api_processes} | {one.database} "
        f"({one.database_share:.1%} of one core) | {one.object_calls_per_s:.1f}/s, {one.gb_a_month:,.0f} GB a month "
        f"| {one.first_limit} |"
        for one in (plan(load, figures) for load in LOADS)
    )
    return PAGE.format(rows=rows, busy=BUSY, f=figures)


PAGE = """# Capacity

A model, fed with figures that `bench/figures.py` measured on two shared cores. It says what a load needs if nothing is
to be busier than {busy:.0%}, and what breaks first if the load grows. Your documents decide: parsing them costs
more than everything else.

| documents an hour | cores for workers | API processes | database | object store | breaks first |
|---|---|---|---|---|---|
{rows}

The figures behind it:

| figure | value |
|---|---|
| processor seconds of a document (the samples; everything included) | {f.parse_cpu_s} |
| durable tasks a second of a small PostgreSQL (assumed; `bench/tasks.py` measures yours) | {f.ledger_tasks_per_s:.0f} |
| calls to the object store for a document | {f.object_calls} |
| MB of a document in the object store (the samples; yours are larger) | {f.object_mb} |
| kB of a task in the database | {f.row_kb} |
| requests for a document | {f.requests_per_document:.0f} |
| requests a second that one API process answers on one core | {f.requests_per_s:.0f} |

- **10 an hour**: one `docmill serve` on the smallest machine. A night's backlog is done before breakfast.
- **1,000 an hour**: one machine still does it embedded; two API processes and two workers on PostgreSQL let any one of
  them fail.
- **100,000 an hour**: the workers are nearly all of the bill. Redis carries ids only; watch the database's commits and
  the bandwidth of the bucket.

Scans cost many times what text costs: measure your own documents, and put that into `Figures.parse_cpu_s`.
This page is made by `python bench/capacity.py docs/reference/capacity.md`.
"""


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(Figures()), encoding="utf-8")
