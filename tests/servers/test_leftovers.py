"""A run of tests finds what it left behind, also where the parent is gone."""

import os
import subprocess
import sys
from uuid import uuid4

from support.leftovers import VARIABLE, end, find_leftovers
from support.waiting import read_line

ORPHAN = """
import os, sys, time
if os.fork():
    sys.exit()
os.setsid()
print(os.getpid(), flush=True)
time.sleep(600)
"""


def test_an_orphan_is_found_by_its_run_and_ended() -> None:
    run = uuid4().hex
    command = [sys.executable, "-c", ORPHAN]
    with subprocess.Popen(command, env=os.environ | {VARIABLE: run}, stdout=subprocess.PIPE, text=True) as parent:
        orphan = int(read_line(parent))

        assert [orphan] == [one.pid for one in find_leftovers(run, within_s=0)]
        assert [] == find_leftovers(uuid4().hex, within_s=0)
        assert f"pid {orphan}: " in end(find_leftovers(run, within_s=0))

    assert [] == find_leftovers(run)
