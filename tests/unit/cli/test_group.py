"""The root of the commands: its sections, and what it says to a mistyped command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from docmill.cli import COMMANDS, SECTIONS
from unit.cli.conftest import Docmill

DOCMILL = str(Path(sys.executable).parent / "docmill")


def test_a_mistyped_command_gets_a_suggestion(docmill: Docmill) -> None:
    done = docmill("conver", "report.pdf")

    assert (2, True) == (done.exit_code, "No such command 'conver'. Did you mean 'convert'?" in done.output)


def test_a_mistyped_command_of_a_group_gets_a_suggestion(docmill: Docmill) -> None:
    assert "Did you mean 'markdown'?" in docmill("tasks", "markdwn", "1").output


def test_nothing_is_suggested_where_nothing_is_similar(docmill: Docmill) -> None:
    done = docmill("qqqq")

    assert (2, True) == (done.exit_code, done.output.endswith("Error: No such command 'qqqq'.\n"))


@pytest.mark.parametrize(("name", "kind"), [("a report.pdf", "file"), ("papers", "folder")])
def test_a_path_instead_of_a_command(
    docmill: Docmill, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    (tmp_path / "papers").mkdir()
    (tmp_path / "a report.pdf").touch()
    monkeypatch.chdir(tmp_path)
    quoted = f"'{name}'" if " " in name else name

    done = docmill(name)

    assert (2, True) == (
        done.exit_code,
        f"is a {kind}, not a command. Convert it with: docmill convert {quoted}" in done.output,
    )


def test_help_has_a_heading_for_each_section_and_every_command_once(docmill: Docmill) -> None:
    lines = docmill("--help").output.splitlines()

    assert [f"{title}:" for title in ("Options", *SECTIONS)] == [
        line for line in lines if line.endswith(":") and line[0] != " "
    ]
    named = [line.split()[0] for line in lines[lines.index(f"{next(iter(SECTIONS))}:") :] if line[:3].strip()]
    assert list(COMMANDS) == [name for name in named if not name.endswith(":") and name in COMMANDS]


def complete(*words: str, shell: str = "bash") -> list[str]:
    env = {
        **os.environ,
        "_DOCMILL_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": words[-1] if shell == "fish" else str(len(words) - 1),
    }
    done = subprocess.run([DOCMILL], env=env, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.splitlines()


def test_completion_knows_commands_their_commands_and_options() -> None:
    assert ["plain,convert", "plain,completion"] == sorted(complete("docmill", "co"), key=len)
    assert ["plain,markdown"] == complete("docmill", "tasks", "mar")
    assert ["plain,--page-images", "plain,--page-files"] == complete("docmill", "convert", "--page")
    assert ["plain,parse", "plain,mineru", "plain,postprocess"] == complete("docmill", "retry", "--from", "")
    assert ["plain,convert\tTurn files and folders into twins, without a server."] == complete(
        "docmill", "conv", shell="fish"
    )


def test_the_script_for_bash_completes_in_bash(tmp_path: Path) -> None:
    script = tmp_path / "completion.bash"
    script.write_bytes(
        subprocess.run([DOCMILL, "completion", "bash"], stdout=subprocess.PIPE, check=True, timeout=60).stdout
    )
    ask = (
        f"source {script}; COMP_WORDS=(docmill expl); COMP_CWORD=1; _docmill_completion docmill; echo ${{COMPREPLY[@]}}"
    )
    env = {**os.environ, "PATH": f"{Path(DOCMILL).parent}{os.pathsep}{os.environ['PATH']}"}

    done = subprocess.run(["bash", "-c", ask], env=env, capture_output=True, text=True, check=True, timeout=60)

    assert "explain\n" == done.stdout


@pytest.mark.parametrize(
    ("shell", "sign"), [("bash", "complete -o nosort"), ("zsh", "#compdef docmill"), ("fish", "complete")]
)
def test_every_shell_has_its_script(docmill: Docmill, shell: str, sign: str) -> None:
    done = docmill("completion", shell)

    assert (0, True) == (done.exit_code, sign in done.output)
    assert "_DOCMILL_COMPLETE" in done.output


def test_an_unknown_shell_is_refused(docmill: Docmill) -> None:
    assert 2 == docmill("completion", "tcsh").exit_code


def interrupted(*steps: str) -> subprocess.CompletedProcess[str]:
    """A process that takes these steps and then gets SIGINT."""
    code = ["import os, signal", "from docmill import cli", *steps, "os.kill(os.getpid(), signal.SIGINT)"]
    return subprocess.run(
        [sys.executable, "-c", "\n".join(code)], capture_output=True, text=True, check=False, timeout=60
    )


def test_ctrl_c_while_a_command_is_imported_ends_it_without_a_word() -> None:
    usual = "signal.signal(signal.SIGINT, signal.default_int_handler)"
    done = interrupted(usual, "cli.exit_on_interrupt()")
    later = interrupted(usual, "cli.exit_on_interrupt()", "cli.raise_on_interrupt()")
    ignored = interrupted("signal.signal(signal.SIGINT, signal.SIG_IGN)", "cli.exit_on_interrupt()")

    assert (130, "", "") == (done.returncode, done.stdout, done.stderr)
    assert "KeyboardInterrupt" in later.stderr
    assert 0 == ignored.returncode
