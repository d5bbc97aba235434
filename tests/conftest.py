import os
from pathlib import Path

import pytest

# Workers of pytest-xdist inherit this, so that all of them collect what is parametrised over sets in one order.
os.environ.setdefault("PYTHONHASHSEED", "0")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config, specs):
    """One BLAS thread per worker: idle threads of OpenBLAS spin, and would take the cores from the other workers."""
    if len(specs) > 1:
        for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ.setdefault(name, "1")


@pytest.fixture(scope="session")
def data_dir():
    """The folder with the real data sets; tests that need it skip cleanly without it."""
    folder = os.environ.get("VICINAL_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("set VICINAL_DATA to the folder with the real data sets to run this test")
    return Path(folder)
