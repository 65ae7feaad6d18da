"""The README and the how-to pages are run, and must print what they say.

A ```console block is run if it starts with `$ docmill`; one that is marked `console service` needs a service, which is
started for its page and answers in place of http://127.0.0.1:8321; `console service model` needs a language model, too,
`console service receiver` the page's own receiver.py, which runs in place of port 9000, and `console service worker`
its worker.py in place of port 9100. Settings of the service are in the page's docmill.toml.
`…` stands for anything: within a line for a part of it, alone for any lines. Blocks that would never end, or name what
is not there, are marked by SHOWN below.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from support.model_peer import ModelPeer
from support.servers.debian import ensure
from support.servers.process import free_ports
from support.waiting import read_line, wait_until

ROOT = Path(__file__).parents[3]
ELSEWHERE = ("external-workers.md", "twins-on-onedrive.md", "go-distributed.md")
"""Pages that need more than a service; the tests of those parts execute them."""
PAGES = (
    "README.md",
    *(
        f"docs/howto/{path.name}"
        for path in sorted((ROOT / "docs" / "howto").glob("*.md"))
        if path.name not in ELSEWHERE
    ),
)
SAMPLES = ("report.en.pdf", "notes.docx", "data.csv", "invoice.en.pdf")
FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ADDRESS = "http://127.0.0.1:8321"
MARK = "-- end of output --"
SHOWN = ("$ docmill serve\n", "$ docmill cancel 12", "$ export ", "$ make ")
BIN = Path(sys.executable).parent


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_the_page_shows_what_the_commands_print(name: str, tmp_path: Path) -> None:
    page = (ROOT / name).read_text("utf-8")
    if "$ curl" in page:
        ensure("curl")
    port, worker_port = free_ports(2)
    page = page.replace(":9000", f":{port}").replace(", 9000)", f", {port})")
    page = page.replace(":9100", f":{worker_port}").replace("port=9100", f"port={worker_port}")
    lay_out(page, tmp_path)
    shown = [step for block in blocks(page) for step in steps(block)]

    with (
        model(wanted="```console service model" in page) as settings,
        receiver(tmp_path, port, wanted="```console service receiver" in page) as hooks,
        worker(tmp_path, worker_port, wanted="```console service worker" in page),
        service(tmp_path, wanted="```console service" in page, **settings, **hooks) as address,
    ):
        printed = run([command.replace(ADDRESS, address) for command, _ in shown], tmp_path, address)

    assert len(shown) == len(printed)
    for (command, output), text in zip(shown, printed, strict=True):
        same = re.fullmatch(pattern(output), text.replace(address, ADDRESS))
        assert same, f"$ {command}\n{text}\n--- the page says ---\n{output}"


@pytest.mark.parametrize("name", PAGES)
def test_every_link_leads_somewhere(name: str) -> None:
    page = (ROOT / name).read_text("utf-8")
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page):
        assert target.startswith("https://") or ((ROOT / name).parent / target).exists(), target


def imported(source: str) -> set[str]:
    modules = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = [
        name
        for node in modules
        for name in ([one.name for one in node.names] if isinstance(node, ast.Import) else [node.module or ""])
    ]
    return {name.partition(".")[0] for name in names} - sys.stdlib_module_names


@pytest.mark.parametrize("name", ["docs/howto/webhooks.md", "docs/howto/write-a-worker.md"])
def test_programs_on_the_page_need_no_more_than_docmill_brings(name: str) -> None:
    page = (ROOT / name).read_text("utf-8")
    programs = [body for language, info, body in FENCE.findall(page) if language == "python" and "file=" in info]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    brought = {re.split(r"[^\w-]", one)[0] for one in project["dependencies"]}

    assert programs
    for module in set().union(*map(imported, programs)) - {"docmill"}:
        assert brought & set(packages_distributions()[module]), module


def lay_out(page: str, folder: Path) -> None:
    for place in ("papers", "samples"):
        (folder / place).mkdir()
        for sample in SAMPLES[: 3 if place == "papers" else None]:
            shutil.copy(ROOT / "samples" / sample, folder / place / sample)
    for _, info, body in FENCE.findall(page):
        if named := re.search(r"\bfile=(\S+)", info):
            (folder / named[1]).write_text(body, "utf-8")


def blocks(page: str) -> Iterator[str]:
    for language, _, body in FENCE.findall(page):
        if language == "console" and not body.startswith(SHOWN):
            yield body


def steps(block: str) -> Iterator[tuple[str, str]]:
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


def pattern(output: str) -> str:
    lines = ("(?:.*\n)*?" if line.strip() == "…" else inside(line) for line in output.splitlines(True))
    return "".join(lines) if output.strip() else r"(?s:.*)"


def inside(line: str) -> str:
    return ".*".join(re.escape(part) for part in line.split("…"))


def run(commands: list[str], folder: Path, address: str) -> list[str]:
    # One shell runs them all, and `echo $?` sees the command before it.
    script = "".join(f"{command}\n__status=$?; printf '%s\\n' '{MARK}'; (exit $__status)\n" for command in commands)
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=environment(folder, DOCMILL_URL=address),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=280,
        check=False,
    )
    # What curl prints has no newline at its end.
    texts = done.stdout.decode().split(MARK + "\n")[:-1]
    return [text if not text or text.endswith("\n") else text + "\n" for text in texts]


@contextmanager
def model(*, wanted: bool) -> Iterator[dict[str, str]]:
    """A language model's server, for pages that need one."""
    if not wanted:
        yield {}
        return
    with ModelPeer() as peer:
        yield {"DOCMILL_LLM": peer.settings()}


@contextmanager
def receiver(folder: Path, port: int, *, wanted: bool) -> Iterator[dict[str, str]]:
    """The receiver of webhooks that a page shows."""
    if not wanted:
        yield {}
        return
    with (folder / "receiver.log").open("w") as log:
        process = subprocess.Popen([sys.executable, "receiver.py"], cwd=folder, stderr=log)
    try:
        yield {"DOCMILL_WEBHOOK_NETWORKS": '["127.0.0.1/32"]', "DOCMILL_WEBHOOK_PORTS": f"[{port}]"}
    finally:
        process.terminate()
        process.wait(timeout=30)


@contextmanager
def worker(folder: Path, port: int, *, wanted: bool) -> Iterator[None]:
    """The external worker that a page shows, with the key that its settings name."""
    if not wanted:
        yield
        return
    [settings] = tomllib.loads((folder / "docmill.toml").read_text())["workers"].values()
    env = {**os.environ, "WORKER_KEY": settings["api_key"]}
    with (folder / "worker.log").open("w") as log:
        process = subprocess.Popen([sys.executable, "worker.py"], cwd=folder, stdout=log, stderr=log, env=env)
    try:
        wait_until(lambda: is_listening(port))
        yield
    finally:
        process.terminate()
        process.wait(timeout=30)


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def service(folder: Path, *, wanted: bool, **settings: str) -> Iterator[str]:
    if not wanted:
        yield ADDRESS
        return
    command = [str(BIN / "docmill"), "serve", "--port", "0", "--data", "data"]
    with (folder / "serve.log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True, env=environment(folder, **settings)
        )
        try:
            assert process.stdout
            yield read_line(process).split()[3]
        finally:
            process.terminate()
            process.communicate(timeout=30)


def environment(folder: Path, **more: str) -> dict[str, str]:
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": path, "HOME": str(folder), "LANG": "C.UTF-8", "NO_COLOR": "1", **more}
