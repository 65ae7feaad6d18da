"""SIGTERM and SIGINT at many moments after the start of `serve`, `worker`, `worker-server` and `convert`.

Every process must end within its grace period and 2 seconds, whatever it inherited: SIGINT ignored (a background job
of a script, nohup), both signals blocked (some supervisors), or neither. Several run at once, so the machine is busy.

    python -m bench.chaos.stops --moments 60 --at-once 8

The exit code is 1 if one did not end in time, ended with an undocumented code, or printed a traceback.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from support.servers import ObjectServer, Postgres, Redis
from support.serving import COLD, Services

GRACE_S = 3.0
AFTER_GRACE_S = 2.0
SPAN_S = 5.0
INHERITED = ("ignored", "blocked", "default")
SIGNALS = (signal.SIGTERM, signal.SIGINT)
SERVICES = frozenset({"serve", "worker", "worker-server"})


@dataclass(frozen=True)
class Case:
    name: str
    command: tuple[str, ...]
    """`{}` stands for a folder of its own."""
    environment: Mapping[str, str]
    inherited: str
    number: signal.Signals
    moment_s: float

    @property
    def codes(self) -> set[int]:
        """Before the first instruction of docmill a signal has its default effect, or is pending until then."""
        orderly = 0 if self.command[0] in SERVICES else 128 + self.number
        return {orderly, -self.number} if self.moment_s < 1 else {orderly}


@dataclass(frozen=True)
class Ended:
    case: Case
    code: int | None
    """None: it had to be killed."""
    seconds: float
    output: str

    @property
    def fault(self) -> str:
        if self.code is None:
            return "it did not end in time"
        if self.case.command[0] == "convert" and self.code == 0:
            return ""  # it was done before the signal came
        if self.code not in self.case.codes:
            return f"exit code {self.code}"
        # The interpreter itself prints one if SIGINT comes before docmill's first instruction.
        return "a traceback" if "Traceback" in self.output and self.code != -signal.SIGINT else ""

    def __str__(self) -> str:
        case = self.case
        what = f"{case.name}: {case.number.name} after {case.moment_s:.2f} s, SIGINT and SIGTERM {case.inherited}"
        return f"{what}: {self.fault or 'ended'} after {self.seconds:.1f} s\n{self.output[-2000:]}"


def choose_cases(
    moments: int, modes: Mapping[str, Mapping[str, str]], document: Path, *, complete: bool = False
) -> list[Case]:
    """*moments* spread evenly over the first seconds, over all commands and all that can be inherited.

    *complete*: every command, inheritance and signal at every moment.
    """
    serve, spool = ("serve", "--port", "0", "--data", "{}"), ("worker-server", "--port", "0", "--spool", "{}")
    convert = ("convert", "--jobs", "1", "-o", "{}", str(document))
    commands = [("embedded serve", serve, {}), ("worker-server", spool, {}), ("convert", convert, {})]
    if distributed := modes.get("distributed"):
        commands.append(("distributed serve", serve, distributed))
        commands.append(("distributed worker", ("worker", "--jobs", "1", "--data", "{}"), distributed))
    ways = [(inherited, number) for inherited in INHERITED for number in SIGNALS]
    # An ignored SIGINT that comes before the first instruction is lost to everybody: SIGTERM is not.
    times = [SPAN_S * at / moments for at in range(moments)]
    if complete:
        chosen = [(command, way, at) for at in times for command in commands for way in ways]
    else:
        chosen = [
            (command, way, at) for at, command, way in zip(times, cycle(commands), cycle(_stride(ways)), strict=False)
        ]
    return [
        Case(name, command, {"DOCMILL_GRACE": str(GRACE_S), **env}, inherited, _hearable(inherited, number, at), at)
        for (name, command, env), (inherited, number), at in chosen
    ]


def _stride(ways: Sequence[tuple[str, signal.Signals]]) -> list[tuple[str, signal.Signals]]:
    """SIGTERM with an ignored SIGINT, which once was lost, more often than the others."""
    return [*ways, ("ignored", signal.SIGTERM)]


def _hearable(inherited: str, number: signal.Signals, moment_s: float) -> signal.Signals:
    return signal.SIGTERM if inherited == "ignored" and moment_s < 1 else number


def stop_one(case: Case) -> Ended:
    with tempfile.TemporaryDirectory(prefix="docmill-stop-", ignore_cleanup_errors=True) as folder:
        command = [one.replace("{}", folder) for one in case.command]
        process = subprocess.Popen(
            [sys.executable, "-m", "docmill", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | COLD | case.environment,
            start_new_session=True,
            preexec_fn=lambda: inherit(case.inherited),
        )
        try:
            process.wait(case.moment_s)
        except subprocess.TimeoutExpired:
            process.send_signal(case.number)
        began = time.monotonic()
        try:
            output, _ = process.communicate(timeout=GRACE_S + AFTER_GRACE_S)
            return Ended(case, process.returncode, time.monotonic() - began, output)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate(timeout=30)
            return Ended(case, None, time.monotonic() - began, output)


def inherit(what: str) -> None:
    """In the child, before it starts."""
    signal.signal(signal.SIGINT, signal.SIG_IGN if what == "ignored" else signal.SIG_DFL)
    if what == "blocked":
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


def stop_all(cases: Sequence[Case], *, at_once: int) -> list[Ended]:
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(stop_one, cases))


@contextmanager
def _distributed() -> Iterator[dict[str, str]]:
    with Postgres() as postgres, Redis() as redis, ObjectServer() as s3, ExitStack() as stack:
        yield Services(postgres.address, redis.address, s3.address).open(stack)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moments", type=int, default=60)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--complete", action="store_true", help="every command and inheritance at every moment")
    parser.add_argument("--document", type=Path, default=Path("samples/scan.en.pdf"))
    given = parser.parse_args()
    with _distributed() as environment:
        modes = {"embedded": {}, "distributed": environment}
        ended = stop_all(
            choose_cases(given.moments, modes, given.document, complete=given.complete), at_once=given.at_once
        )
    faults = [one for one in ended if one.fault]
    slowest = max(one.seconds for one in ended)
    print(f"{len(ended)} processes stopped, {len(faults)} faults, slowest {slowest:.2f} s (grace {GRACE_S:g} s)")
    print("\n".join(str(one) for one in faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
