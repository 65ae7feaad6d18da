"""Chaos: real processes under fire, and a count of what went wrong. `python -m bench.chaos --help`."""

import sys
from pathlib import Path

# The servers that the tests start are the ones that are killed here.
sys.path.insert(0, str(Path(__file__).parent.parent.parent / "tests"))
