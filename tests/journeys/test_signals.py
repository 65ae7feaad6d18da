"""SIGTERM and SIGINT end every long-running command in order, at any moment and whatever was inherited (R30)."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.chaos.stops import choose_cases, stop_all
from support.serving import COLD, Etl, Mode, Service
from support.waiting import read_line

SAMPLES = Path(__file__).parents[2] / "samples"
MOMENTS = int(os.environ.get("DOCMILL_STOP_MOMENTS", "10"))
"""In each mode; 60 on demand. Over all commands and all combinations: python -m bench.chaos.stops --complete"""
AT_ONCE = 7


@pytest.mark.slow
def test_a_signal_at_any_moment_of_the_first_seconds_is_not_lost(mode: Mode, tmp_path: Path) -> None:
    modes = {"distributed": mode.environment(tmp_path)} if mode.is_distributed else {}
    cases = choose_cases(MOMENTS, modes, SAMPLES / "scan.en.pdf")
    if mode.is_distributed:
        cases = [
            case for case in choose_cases(2 * MOMENTS, modes, SAMPLES / "scan.en.pdf") if "distributed" in case.name
        ]

    ended = stop_all(cases, at_once=AT_ONCE)

    assert [] == [str(one) for one in ended if one.fault]


def stop_with(command: list[str], number: int, *, within_s: float, folder: Path, ready: str = "") -> tuple[int, str]:
    """Start docmill with SIGINT ignored, signal it once it printed *ready*; its exit code and output."""
    with subprocess.Popen(
        [sys.executable, "-m", "docmill", *command],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | COLD | {"DOCMILL_GRACE": "20"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN) and None,
    ) as process:
        try:
            line = read_line(process)
            for _ in range(20):  # a log may come first
                if ready in line:
                    break
                line += read_line(process)
            assert ready in line, line
            process.send_signal(number)
            output, _ = process.communicate(timeout=within_s)
        except BaseException:
            process.kill()
            raise
    return process.returncode, line + output


def test_the_right_moment_after_the_line_that_says_it_serves(tmp_path: Path) -> None:
    command = ["serve", "--port", "0", "--data", str(tmp_path / "data")]
    code, output = stop_with(command, signal.SIGTERM, within_s=30, folder=tmp_path, ready="serves")
    assert 0 == code, output


def test_a_stopped_conversion_says_so_and_leaves_no_scratch_folder(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    shutil.copy(SAMPLES / "report.en.pdf", tmp_path / "a.pdf")
    for number in range(3):
        shutil.copy(SAMPLES / "scan.en.pdf", tmp_path / f"z{number}.pdf")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(tmp_path / "tmp"))
        patch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        command = ["convert", "--jobs", "1", "-o", str(tmp_path / "out"), "."]
        code, output = stop_with(command, signal.SIGTERM, within_s=30, folder=tmp_path, ready="converted")

    assert 128 + signal.SIGTERM == code, output
    assert "Stopped; " in output
    assert "Traceback" not in output
    assert [] == list((tmp_path / "tmp").iterdir())


def test_an_event_loop_that_is_stuck_does_not_outlive_the_grace_period(tmp_path: Path) -> None:
    service = Service(tmp_path / "data", "--jobs", "1", DOCMILL_GRACE="1")
    service.tampered(busy={"seconds": 60, "name": "stuck.txt"}).start()
    with service.client() as client:
        task_id = Etl(client).upload("stuck.txt", b"stuck")
        with pytest.raises(Exception, match="timed out"):
            while True:
                body = {"project_id": 1, "filename": "stuck.txt", "s3_key": task_id["key"]}
                client.post(f"{Etl.BASE}/submit", json=body, timeout=1)
    began = time.monotonic()

    assert 128 + signal.SIGTERM == service.stop(30)

    assert time.monotonic() - began < 30, "it is busy for 60 s"
    assert any("did not stop within" in line for line in service.log)


def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    """An upload that never ends keeps the grace period open."""
    service = Service(tmp_path / "data", "--jobs", "1", DOCMILL_GRACE="20").start()
    with socket.create_connection(("127.0.0.1", service.port), timeout=30) as upload:
        upload.sendall(
            b"POST /api/v1/etl/upload HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000\r\n"
            b"Content-Type: multipart/form-data; boundary=b\r\nExpect: 100-continue\r\n\r\n"
        )
        assert b" 100 " in upload.recv(100), "the service waits for the body"
        upload.sendall(b"--b\r\n")
        os.kill(service.pid, signal.SIGTERM)
        time.sleep(0.5)
        assert service.is_running, "the upload did not keep it waiting, so this test shows nothing"
        began = time.monotonic()
        assert 128 + signal.SIGTERM == service.stop(15)
        assert time.monotonic() - began < 15, "the grace period is 20 s"


def test_a_worker_that_waits_for_its_database_can_be_stopped(tmp_path: Path) -> None:
    """A server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        environment = {
            "DATABASE_URL": f"postgresql://u:p@{address}/d",
            "REDIS_URL": f"redis://{address}/0",
            "OBJECTS_URL": "s3://bucket/prefix",
            "DOCMILL_GRACE": "20",
        }
        command = [sys.executable, "-m", "docmill", "worker", "--data", str(tmp_path)]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ | COLD | environment
        )
        try:
            silent.settimeout(30)
            connection, _ = silent.accept()
            process.send_signal(signal.SIGTERM)
            output, _ = process.communicate(timeout=30)
        finally:
            process.kill()
            process.communicate(timeout=10)
        connection.close()
    assert 0 == process.returncode, output
