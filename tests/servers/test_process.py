"""Nothing that a test run starts may outlive it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from support.servers import ObjectServer, Postgres, Redis, ServiceFailed
from support.servers.process import Server, free_port
from support.waiting import read_line

TESTS = Path(__file__).parents[1]
SERVERS = [Postgres, Redis, ObjectServer]

RUN_OF_TESTS = """
import sys, time
sys.path.insert(0, sys.argv[1])
import support.servers as services
server = getattr(services, sys.argv[2])().start()
print(server.process.supervisor.pid, server.folder, flush=True)
time.sleep(600)
"""


def family(pid: int) -> list[psutil.Process]:
    head = psutil.Process(pid)
    return [head, *head.children(recursive=True)]


def still_running(processes: list[psutil.Process], *, within: float) -> list[psutil.Process]:
    deadline = time.monotonic() + within
    while (alive := [p for p in processes if is_alive(p)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return alive


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("how", ["close", "kill"])
def test_nothing_is_left_of_a_server_that_was_ended(kind: type[Server], how: str) -> None:
    with kind() as server:
        assert server.process
        processes = family(server.process.supervisor.pid)
        assert len(processes) >= 2

        getattr(server, how)()

        assert [] == still_running(processes, within=0)
    assert server.folder
    assert not server.folder.exists()
    assert not any(path.exists() for path in server.leftovers)


@pytest.mark.slow
@pytest.mark.parametrize("kind", SERVERS)
def test_a_server_dies_with_a_run_of_tests_that_is_killed(kind: type[Server]) -> None:
    run = [sys.executable, "-c", RUN_OF_TESTS, str(TESTS), kind.__name__]
    with subprocess.Popen(run, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        supervisor, folder = read_line(parent).split()
        processes = family(int(supervisor))
        parent.kill()

    assert [] == still_running(processes, within=30)
    assert not Path(folder).exists()


@pytest.mark.slow
@pytest.mark.parametrize("kind", SERVERS)
def test_a_server_dies_with_its_supervisor(kind: type[Server]) -> None:
    """For PostgreSQL run by root this shows that the change of user did not clear the death signal."""
    with kind() as server:
        assert server.process
        processes = family(server.process.supervisor.pid)

        os.kill(server.process.supervisor.pid, signal.SIGKILL)
        server.process.supervisor.wait(30)

        assert [] == still_running(processes, within=10)
        for path in server.leftovers:  # there was nobody left to remove them
            path.unlink(missing_ok=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to step down")
def test_postgres_does_not_run_as_root() -> None:
    with Postgres() as server:
        assert server.process
        assert "nobody" == psutil.Process(server.process.pid).username()


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="others run the wheel's files in place")
def test_postgres_runs_from_a_place_that_only_root_may_enter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import support.servers.postgres as module

    private = module.copy_of_wheel(module.wheel(), tmp_path)
    assert not module.can_be_entered_by_all(private)
    monkeypatch.setattr(module, "wheel", lambda: private)

    with Postgres() as server:
        assert server.is_running
        assert server.folder
        assert server.folder in server.home.parents


def test_a_server_that_cannot_start_says_why() -> None:
    with Redis() as first, pytest.raises(ServiceFailed, match="Address already in use"), Redis(port=first.port):
        pass


def test_a_port_that_was_taken_meanwhile_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with Redis() as first:
        offers = iter([first.port, first.port, free_port()])
        monkeypatch.setattr("support.servers.process.free_port", lambda: next(offers))
        with Redis() as second:
            assert second.port != first.port
            assert second.is_ready()
