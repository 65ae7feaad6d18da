"""The sandbox of parsers: its rules, its levels, and every known way out, tried from inside."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import stat
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from docmill.adapters.engines.confine import bare_environment, confine, readable_paths
from docmill.adapters.engines.local import Limits, LocalEngine
from docmill.adapters.engines.sandbox import calls, home, paths
from docmill.adapters.engines.sandbox.home import Home, UnsafeResult, remove_tree
from docmill.adapters.engines.sandbox.levels import Level, judge
from docmill.adapters.engines.slicing.cutting import Cutter
from docmill.core.errors import StageFailed, Unavailable
from docmill.core.routing import Slice
from docmill.ports import Work
from support import documents
from unit.engines.attacker import COMMON, NUMBERS

HERE = Path(__file__).parent
ATTACKER = HERE / "attacker.py"
LAUNCHER = HERE.parents[1] / "support" / "deployments.py"
FULL, JAILED, PARTIAL, WEAK = Level


def run_in(deployment: str, *command: str | Path) -> str:
    done = subprocess.run(
        [sys.executable, LAUNCHER, deployment, sys.executable, *command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
        cwd="/",
        env={name: value for name, value in os.environ.items() if name != "TMPDIR"},
    )
    assert 0 == done.returncode, done.stderr
    return done.stdout.splitlines()[-1]


@cache
def attack(deployment: str, attacker: Path = ATTACKER) -> dict[str, Any]:
    """What a parser that was taken over reached in a deployment."""
    told: dict[str, Any] = json.loads(run_in(deployment, HERE / "attacked.py", attacker))
    return told


def possible(told: dict[str, Any], *parts: str) -> list[str]:
    found: dict[str, str] = told["found"]
    return [name for name, word in found.items() if word == "possible" and (not parts or name.startswith(parts))]


@pytest.mark.parametrize(
    ("deployment", "level"),
    [
        ("root", FULL),
        ("root,readable", FULL),
        ("root,readable,container,no_userns", FULL),
        ("readable,user", FULL),
        ("readable,user,no_userns", FULL),
        ("root,no_landlock", JAILED),
        ("readable,user,no_landlock", JAILED),
    ],
)
def test_no_way_out_is_open(deployment: str, level: Level) -> None:
    told = attack(deployment)

    assert [] == possible(told)
    assert len(told["found"]) > 150
    assert level == told["isolation"]["level"]
    assert told["kept"], "the service's files"
    assert told["source"], "the input, which is a link to a file of the service"
    assert ["docmill.db", "objects", "scratch", "secret", "socket"] == told["left"]


@pytest.mark.parametrize("abi", [1, 3, 5, 99])
def test_an_old_landlock_is_enough_and_one_that_promises_too_much_is_used_as_far_as_it_goes(
    abi: int, tmp_path: Path
) -> None:
    older = tmp_path / "older.py"
    older.write_text(
        "import runpy\n"
        "from docmill.adapters.engines.sandbox import kernel\n"
        f"kernel.landlock_abi = lambda: {abi}\n"
        f"runpy.run_path({str(ATTACKER)!r}, run_name='__main__')\n"
    )

    told = attack("root", older)

    assert [] == possible(told)
    assert "full" == told["isolation"]["level"]
    if abi < 99:
        assert f"abi {abi}" == told["isolation"]["landlock"]


def test_started_as_root_a_parser_has_a_user_of_its_own() -> None:
    """Where the system can give it one: a user namespace may know a single user."""
    isolation = attack("root,readable,container,no_userns")["isolation"]

    assert ("own" if os.geteuid() == 0 else None) == isolation.get("user")


def test_with_the_filter_alone_files_are_open_and_nothing_else() -> None:
    told = attack("readable,user,no_landlock,no_userns")

    assert "partial" == told["isolation"]["level"]
    assert "files: read the secret" in possible(told)
    assert [] == possible(told, "network", "processes", "kernel", "results", "descriptors")
    assert ["service: its command line"] == possible(told, "service")


def test_without_a_filter_the_level_is_weak() -> None:
    told = attack("readable,user,no_seccomp")

    assert "weak" == told["isolation"]["level"]
    assert "processes: fork" in possible(told)
    assert [] == possible(told, "files: read the")


REQUIRING = """
import asyncio, sys
from docmill.adapters.engines.local import LocalEngine
from docmill.adapters.engines.sandbox.kernel import hide_memory
from docmill.core.errors import Unavailable

if sys.argv[1] == "hidden":
    hide_memory()

async def main():
    engine = LocalEngine(1, spares=0, needs_full_sandbox=True)
    try:
        await engine.confirm_sandbox()
        print("started", engine.sandbox_level)
    except Unavailable as error:
        print(error.code, error.message)
    finally:
        await engine.close()

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("deployment", "memory", "level", "missing"),
    [
        ("root,no_landlock", "hidden", "jailed", "(landlock: none: Function not implemented)"),
        ("readable,user,no_landlock,no_userns", "hidden", "partial", "read_files, write_files)"),
        ("readable,user,no_landlock,no_userns", "visible", "weak", "service_memory"),
        ("readable,user,no_seccomp", "hidden", "weak", "(filter: none: Invalid argument"),
    ],
)
def test_who_requires_the_full_sandbox_gets_an_error_that_says_what_is_missing(
    deployment: str, memory: str, level: str, missing: str
) -> None:
    answer = run_in(deployment, "-c", REQUIRING, memory)

    assert answer.startswith(f"sandbox_insufficient The parsers' sandbox is {level}, and the setting sandbox asks")
    assert missing in answer


def test_who_requires_the_full_sandbox_starts_where_there_is_one() -> None:
    assert "started full" == run_in("root", "-c", REQUIRING, "hidden")


@pytest.mark.parametrize("command", [("serve", "--port", "0"), ("convert", "a.txt"), ("worker-server", "--port", "0")])
def test_no_command_that_parses_starts_below_what_is_required(command: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("words")

    done = subprocess.run(
        [sys.executable, LAUNCHER, "root,no_landlock", sys.executable, "-m", "docmill", *command],
        cwd=tmp_path,
        env=os.environ | {"DOCMILL_SANDBOX": "require", "DOCMILL_DATA": str(tmp_path / "data")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert 2 == done.returncode
    assert "sandbox_insufficient: The parsers' sandbox is jailed" in done.stderr
    assert "" == done.stdout
    assert not (tmp_path / "_a.txt").exists()


def test_a_document_is_not_given_to_a_parser_that_is_confined_less_than_required(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from docmill.adapters.engines.local import process

    monkeypatch.setattr(process, "judge", lambda layers, _possible: judge({**layers, "landlock": "none: ?"}, ()))
    (tmp_path / "a.txt").write_text("words")

    async def play() -> None:
        engine = LocalEngine(1, spares=0, needs_full_sandbox=True)
        try:
            await engine.start(Work(1, uuid4(), tmp_path / "a.txt", "a.txt", tmp_path), lambda *_: None)
        finally:
            await engine.close()

    with pytest.raises(Unavailable) as caught:
        asyncio.run(play())
    assert "sandbox_insufficient" == caught.value.code


def test_pages_are_counted_and_cut_in_the_sandbox_and_the_original_stays_untouched(tmp_path: Path) -> None:
    source = documents.pdf_with_headers(tmp_path / "a.pdf", pages=5)
    before = source.stat()
    cutter = Cutter(scratch=tmp_path, needs_full_sandbox=True)

    async def play() -> list[Path]:
        assert 5 == (await cutter.facts(source, "a.pdf")).pages
        return await cutter.cut(source, tmp_path / "cut", [Slice(0, 1), Slice(2, 4)])

    pieces = asyncio.run(play())

    assert [b"%PDF"] * 2 == [piece.read_bytes()[:4] for piece in pieces]
    now = source.stat()
    assert (before.st_ctime_ns, before.st_nlink, before.st_size) == (now.st_ctime_ns, now.st_nlink, now.st_size)
    assert [] == list(tmp_path.glob("docmill-child-*"))


def test_confining_is_refused_when_a_second_thread_runs() -> None:
    done = threading.Event()
    other = threading.Thread(target=done.wait)
    other.start()
    try:
        with pytest.raises(RuntimeError):
            confine(os.getppid(), 1024, 10, "/nowhere")
    finally:
        done.set()
        other.join(10)


# The child of one tenant, and its folder


def test_a_child_that_has_read_a_tenants_document_reads_none_of_another(naughty: Callable[..., Any]) -> None:
    async def play(engine: Any, work: Any) -> None:
        async def pid(tenant: str) -> str:
            parsed = await engine.start(replace(work("pid"), tenant=tenant), lambda *_: None)
            return str(parsed.pages[0].markdown)

        readers: dict[str, set[str]] = {"a": set(), "b": set(), "c": set(), "d": set()}
        for tenant in "aabbabccdab":
            readers[tenant].add(await pid(tenant))
            assert len(engine._children) <= 2

        everybody = [one for pids in readers.values() for one in pids]
        assert len(everybody) == len(set(everybody))
        assert len(readers["a"]) < 4, "children are used again"

    naughty(play)


def test_the_input_is_a_copy_unless_it_is_ours(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_text("words")
    source.chmod(0o644)
    place = Home.make(tmp_path)
    try:
        place.place(source, may_link=False)
        assert source.stat().st_ino != place.input.stat().st_ino
        assert 1 == source.stat().st_nlink
        assert 0 == place.input.stat().st_mode & 0o227, "nobody may write it, and strangers not read it"

        place.place(source, may_link=True)
        linked = source.stat().st_dev == place.path.stat().st_dev
        assert linked == (source.stat().st_ino == place.input.stat().st_ino)
        assert "words" == place.input.read_text()
    finally:
        place.remove()


def test_a_document_that_only_root_may_read_is_copied_for_the_childs_user(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_text("words")
    source.chmod(0o600)
    place = replace(Home.make(tmp_path), uid=os.getgid())
    try:
        place.place(source, may_link=True)
        assert source.stat().st_ino != place.input.stat().st_ino
        assert 0o600 == stat.S_IMODE(source.stat().st_mode)
    finally:
        place.remove()


def test_nothing_of_a_document_stays_on_disk_when_it_is_read(naughty: Callable[..., Any]) -> None:
    async def play(engine: Any, work: Any) -> None:
        await engine.start(work("say", "fine"), lambda *_: None)
        (child,) = (one for one in engine._idle if one.tenant is not None)
        assert [] == [*child.out.iterdir(), *child.out.with_name("in").iterdir()]
        folder = child.out.parent
        await engine.close()
        assert not folder.exists()

    naughty(play)


@pytest.mark.parametrize("trick", ["link", "parent", "fifo", "folder", "large", "other", "missing"])
def test_results_that_are_not_what_they_seem_are_refused(trick: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("canary")
    place = Home.make(tmp_path)
    assets = place.out / "assets"
    if trick == "parent":
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere" / "a.png").write_text("canary")
        assets.symlink_to(tmp_path / "elsewhere")
    else:
        assets.mkdir()
        {
            "link": lambda: (assets / "a.png").symlink_to(secret),
            "fifo": lambda: os.mkfifo(assets / "a.png"),
            "folder": lambda: (assets / "a.png").mkdir(),
            "large": lambda: (assets / "a.png").write_bytes(b"x" * 101),
            "other": lambda: (assets / "a.png").write_bytes(b"x"),
            "missing": lambda: None,
        }[trick]()

    with pytest.raises(UnsafeResult):
        place.collect("assets", {"a.png": "00" * 32}, tmp_path / "target", 100)

    assert not any("canary" in path.read_text() for path in (tmp_path / "target").glob("*"))
    place.remove()
    assert "canary" == secret.read_text()
    assert not place.path.exists()


def test_a_folder_without_rights_does_not_outlive_its_child(tmp_path: Path) -> None:
    place = Home.make(tmp_path)
    (place.out / "closed").mkdir()
    (place.out / "closed" / "file").touch()
    (place.out / "closed").chmod(0)

    place.remove()

    assert not place.path.exists()


def test_the_disk_that_a_child_takes_is_measured_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Home.make(tmp_path)
    try:
        assert place.used_bytes(os.getpid()) < 1 << 20
        with (place.temp / "removed").open("wb") as file:
            file.write(b"x" * (3 << 20))
            file.flush()
            assert place.used_bytes(os.getpid()) >= 3 << 20
            (place.temp / "removed").unlink()
            assert place.used_bytes(os.getpid()) >= 3 << 20
        monkeypatch.setattr(home, "MAX_ENTRIES", 10)
        for number in range(12):
            (place.out / str(number)).touch()
        assert place.used_bytes(os.getpid()) > 1 << 60
    finally:
        place.remove()


def test_a_parser_is_told_nothing_and_calls_nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "/canary")
    told = bare_environment(tmp_path)

    assert "1" == told["ORT_DISABLE_TELEMETRY"]
    assert "canary" not in json.dumps(told)


# The rules


def decide(program: bytes, number: int, arguments: tuple[int, ...] = (), arch: int = 0) -> int:
    """What the kernel would do: a small interpreter of classic BPF."""
    data = struct.pack("<IIQ6Q", number, arch, 0, *arguments, *[0] * (6 - len(arguments)))
    lines = [struct.unpack_from("<HBBI", program, 8 * index) for index in range(len(program) // 8)]
    at = accumulator = 0
    while True:
        code, if_true, if_false, value = lines[at]
        at += 1
        match code:
            case calls.LOAD:
                (accumulator,) = struct.unpack_from("<I", data, value)
            case calls.AND:
                accumulator &= value
            case calls.JUMP_EQUAL:
                at += if_true if accumulator == value else if_false
            case calls.JUMP_AT_LEAST:
                at += if_true if accumulator >= value else if_false
            case calls.JUMP_ANY_BIT:
                at += if_true if accumulator & value else if_false
            case calls.RETURN:
                return int(value)
            case _:
                raise AssertionError(code)


@pytest.fixture(params=sorted(calls.MACHINES))
def machine(request: pytest.FixtureRequest) -> calls.Machine:
    return calls.MACHINES[request.param]


def test_no_number_stands_for_two_calls(machine: calls.Machine) -> None:
    every = [*calls.numbers(calls.ALLOWED, machine).values(), *calls.numbers(calls.CHECKED, machine).values()]

    assert len(every) == len(set(every))
    assert len(every) > 120


def test_the_filter_allows_its_list_and_nothing_else(machine: calls.Machine) -> None:
    program = calls.parser_program(machine, pid=77)
    allowed = set(calls.numbers(calls.ALLOWED, machine).values())
    checked = set(calls.numbers(calls.CHECKED, machine).values())

    for number in {*range(600), 0x40000000 | 39} - checked:
        error = errno.EPERM if number < calls.FIRST_COMMON_NUMBER else errno.ENOSYS
        expected = calls.ALLOW if number in allowed else calls.ERRNO | error
        assert expected == decide(program, number, arch=machine.audit_arch), number
    assert calls.KILL == decide(program, 0, arch=0x40000003), "32 bits"


def test_no_call_that_reaches_beyond_the_process_is_in_the_list(machine: calls.Machine) -> None:
    column = machine.column - 1
    forbidden = {number[column] for name, number in NUMBERS.items() if name not in ALSO_HARMLESS} | set(COMMON.values())
    forbidden |= {(41, 198)[column], (42, 203)[column], (49, 200)[column], (46, 211)[column], (47, 212)[column]}

    assert not forbidden & set(calls.numbers(calls.ALLOWED, machine).values())


ALSO_HARMLESS = {"clone", "prlimit64", "prctl", "ioctl"}
"""With some of their arguments."""


@pytest.mark.parametrize(
    ("name", "arguments", "allowed"),
    [
        ("clone", (0x3D0F00,), True),
        ("clone", (17,), False),
        ("clone", (0x3D0F00 | 0x10000000,), False),
        ("kill", (77, 9), True),
        ("kill", (1, 9), False),
        ("kill", ((1 << 64) - 1, 9), False),
        ("tgkill", (77, 78, 6), True),
        ("tgkill", (76, 76, 6), False),
        ("prlimit64", (0, 7), True),
        ("prlimit64", (1, 7), False),
        ("prctl", (15,), True),
        ("prctl", (1,), False),
        ("fcntl", (3, 3), True),
        ("fcntl", (3, 8), False),
        ("fcntl", (3, 10), False),
        ("ioctl", (0, 0x5401), True),
        ("ioctl", (0, 0x5412), False),
        ("socketpair", (1, 1 | 0x80000), True),
        ("socketpair", (1, 2), False),
        ("socketpair", (2, 1), False),
        ("sendto", (3, 0, 1, 0, 0, 0), True),
        ("sendto", (3, 0, 1, 0, 1, 16), False),
        ("sendto", (3, 0, 1, 0, 1 << 32, 16), False),
        ("openat", (0, 0, 0x80000), True),
        ("openat", (0, 0, 0x241), True),
        ("openat", (0, 0, 0x200), False),
    ],
)
def test_arguments_decide(machine: calls.Machine, name: str, arguments: tuple[int, ...], allowed: bool) -> None:
    number = calls.numbers(calls.CHECKED, machine)[name]
    found = decide(calls.parser_program(machine, pid=77), number, arguments, machine.audit_arch)

    assert allowed == (found == calls.ALLOW)


def test_links_and_special_files_are_no_right_of_anybody() -> None:
    made = paths.rights("make_sym make_fifo make_sock make_char make_block execute")

    assert not made & (paths.READ | paths.WRITE | paths.USE_DEVICE)
    assert not paths.READ & paths.rights("write_file truncate remove_file make_reg refer")
    assert (1 << 13) - 1 == paths.handled_rights(1)
    assert (1 << 16) - 1 == paths.handled_rights(7)


def test_a_library_folder_with_the_data_inside_is_left_out() -> None:
    search = ["/venv/lib", "/", "/usr", "/project", "/projects", "/venv/lib"]

    assert ["/venv/lib", "/projects"] == paths.library_roots(search, ["/project/.docmill/scratch"])
    assert "/etc" not in readable_paths([])


@pytest.mark.parametrize(
    ("layers", "found", "level"),
    [
        ({"landlock": "abi 7", "filter": "seccomp"}, (), FULL),
        ({"landlock": "none: ?", "mounts": "own", "filter": "seccomp"}, (), JAILED),
        ({"landlock": "none: ?", "mounts": "none: ?", "filter": "seccomp"}, ("read_files",), PARTIAL),
        ({"landlock": "none: ?", "filter": "seccomp"}, (), PARTIAL),
        ({"landlock": "abi 7", "filter": "seccomp"}, ("read_files",), PARTIAL),
        ({"landlock": "abi 7", "filter": "seccomp"}, ("processes",), WEAK),
        ({"landlock": "abi 7", "filter": "none: ?"}, (), WEAK),
        ({}, (), WEAK),
    ],
)
def test_a_layer_counts_if_what_it_should_refuse_was_refused(
    layers: dict[str, str], found: tuple[str, ...], level: Level
) -> None:
    isolation = judge(layers, found)

    assert level is isolation.level
    assert level.value == isolation.facts()["level"]
    assert (level is FULL) == (isolation.missing() == "nothing")


def test_levels_have_an_order() -> None:
    assert [3, 2, 1, 0] == [level.rank for level in Level]


def test_a_long_document_is_believed_to_the_limit_of_pages(naughty: Callable[..., Any]) -> None:
    async def play(engine: Any, work: Any) -> None:
        with pytest.raises(StageFailed) as caught:
            await engine.start(work("long", "slow"), lambda *_: None)
        assert "it broke the protocol" == caught.value.facts["how"]

    naughty(play, Limits(seconds=20, pages=299))


def test_a_tree_of_thousands_of_levels_is_removed(tmp_path: Path) -> None:
    """A parser that was taken over may leave one; `shutil.rmtree` ends with RecursionError."""
    top = tmp_path / "out"
    top.mkdir()
    here = os.open(top, os.O_RDONLY)
    for _ in range(3_000):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY | os.O_DIRECTORY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)

    remove_tree(top)

    assert not top.exists()
