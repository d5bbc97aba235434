"""The list of faults that `tests/planted_faults` plants fits the code."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_every_fault_can_be_planted_and_there_are_sixty():
    """This test is slow, so that a change of one of these lines does not require an immediate change of the list."""
    code = """
import runpy, sys
sys.path.insert(0, "tests/planted_faults")
script = runpy.run_path("tests/planted_faults/__main__.py")
assert len(script["FAULTS"]) == 60
print(*script["misplaced"](), sep="\\n")
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
