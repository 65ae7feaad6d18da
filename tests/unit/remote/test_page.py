"""The worker of the how-to page is run as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from support.receiver import Receiver, Say

PAGE = Path(__file__).parents[3] / "docs" / "howto" / "write-a-worker.md"


def test_the_worker_on_the_page_works(tmp_path: Path) -> None:
    found = re.search(r"^```python file=worker.py\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert found
    (tmp_path / "worker.py").write_text(found[1])
    (tmp_path / "in.txt").write_text("one\ftwo\fthree")
    assert 10 >= len([line for line in found[1].splitlines() if line.strip() and "import" not in line])

    with Receiver() as docmill:
        docmill.says(Say(), Say(500))
        done = subprocess.run(
            [sys.executable, "worker.py", "in.txt"],
            cwd=tmp_path,
            env=os.environ | {"CALLBACK_URL": docmill.job(), "CALLBACK_TOKEN": "token"},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    assert 0 == done.returncode, done.stderr
    assert "one\n\ntwo\n\nthree" == docmill.accepted[0].json["data"]["extracted_text"]
    assert docmill.progress
    assert [] == list((tmp_path / "spool").iterdir())
