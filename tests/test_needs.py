"""The tests pass where optional packages are missing."""

import subprocess
import sys
from pathlib import Path

FILES = ("test_idea.py", "test_retrieval.py", "test_engine_neighbors.py", "test_fit_loops.py")
# Run pytest with a finder that does not find the optional packages.
BARE = """
import sys
from importlib.machinery import PathFinder

class Bare(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        missing = {"torch", "dask", "distributed", "matplotlib", "pandas"}
        return None if name.partition(".")[0] in missing else super().find_spec(name, path, target)

sys.meta_path[:] = [Bare if finder is PathFinder else finder for finder in sys.meta_path]
import pytest
sys.exit(pytest.main(sys.argv[1:]))
"""


def test_missing_packages_skip_the_tests_that_need_them_and_no_others_fail():
    options = ("-q", "-rs", "-p", "no:cacheprovider", "-p", "no:xdist")
    command = [sys.executable, "-c", BARE, *options, *FILES]
    run = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "needs torch" in run.stdout
