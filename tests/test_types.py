"""Test the types that editors and type checkers see: every public name and argument, and nothing else."""

import ast
import inspect
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from needs import needs

import vicinal

SOURCE = Path(vicinal.__file__)

CORRECT = """
import numpy as np
import vicinal
from vicinal import LCA, NCA, Engine, Objective, ParzenWindows, StochasticEM
from vicinal.quality import neighbor_purity

rng = np.random.default_rng(0)
X, y = rng.normal(size=(60, 3)), np.arange(60) % 2
nca = NCA(n_components=2, objective=Objective("likelihood", penalty=0.1), random_state=0).fit(X, y)
Z = nca.transform(X)
lca = LCA("diag", solver=StochasticEM(batch_size=20), engine=Engine(threads=1)).fit(X.tolist())
scores = lca.score_samples(X).mean() + ParzenWindows(0.5).fit(X).score(X)
purity = neighbor_purity(Z, y, 5)[0] + len(vicinal.datasets.make_spiral(10)[0])
vicinal.io.save(nca, "nca.vicinal")
"""
WRONG = {
    "NCA(n_componets=3)": "n_componets",
    "vicinal.Nope": "Nope",
    'LCA(solver="em", neighborhood=3)': "neighborhood",
}


def described_names():
    """The names that the TYPE_CHECKING block imports, by where it takes them from."""
    tree = ast.parse(SOURCE.read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    return {alias.asname: line.module for line in block.body for alias in line.names}


def test_type_checkers_see_the_public_names():
    expected = {name: f"vicinal.{home}" for name, home in vicinal._HOME.items()}
    expected |= dict.fromkeys(vicinal._MODULES, "vicinal")
    assert described_names() == expected
    assert {*expected, "__version__"} == {*vicinal.__all__}


@pytest.mark.parametrize("name", ["companions", "datasets", "io", "plot", "quality", "results", "tables"])
def test_modules_show_their_public_names_only(name):
    if name == "plot":
        needs("matplotlib")
    module = getattr(vicinal, name)
    assert dir(module) == sorted(module.__all__)


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("programs")
    (folder / "correct.py").write_text(CORRECT)
    lines = ["import vicinal", "from vicinal import LCA, NCA", *WRONG]
    (folder / "wrong.py").write_text("\n".join(lines) + "\n")
    return folder


def assert_found(report, programs):
    """The type checker reports only the wrong lines, each with the expected reason."""
    errors = [line for line in report.splitlines() if "error" in line and ".py:" in line]
    assert not [line for line in errors if "correct.py" in line], report
    for number, word in enumerate(WRONG.values(), start=3):
        assert [line for line in errors if f"wrong.py:{number}:" in line and word in line], report


@pytest.mark.slow
def test_mypy_knows_the_arguments(programs):
    needs("mypy")
    options = ["--ignore-missing-imports", "--follow-imports=silent", "--no-incremental", "--show-error-codes"]
    command = [sys.executable, "-m", "mypy", *options, "correct.py", "wrong.py"]
    found = subprocess.run(command, cwd=programs, capture_output=True, text=True, check=False)
    assert_found(found.stdout, programs)


@pytest.mark.slow
def test_pyright_knows_the_arguments(programs):
    pyright = shutil.which("basedpyright", path=Path(sys.executable).parent) or shutil.which("pyright")
    if pyright is None:
        pytest.skip("neither pyright nor basedpyright is installed")
    (programs / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}')
    command = [pyright, "--pythonpath", sys.executable, "correct.py", "wrong.py"]
    found = subprocess.run(command, cwd=programs, capture_output=True, text=True, check=False)
    assert_found(found.stdout, programs)


@pytest.mark.slow
def test_editors_complete_classes_and_arguments():
    jedi = needs("jedi")

    def completed(text):
        return {found.name for found in jedi.Script(text).complete(len(text.splitlines()), len(text.splitlines()[-1]))}

    assert {"LCA", "LCAGauss"} <= completed("import vicinal\nvicinal.LC")
    assert "n_components=" in completed("from vicinal import NCA\nNCA(n_comp")
    assert "score_samples" in completed("from vicinal import LCA\nLCA().score_s")


def test_help_shows_aliases():
    """An argument was shown as a union of 300 characters: ``Union[numpy._typing._array_like._Buffer, ...]``."""
    for owner in (vicinal.LCA, vicinal.ParzenWindows, vicinal.DensityOutlierDetector, vicinal.NCA, vicinal.RCA):
        for method in ("fit", "score_samples", "transform", "explain", "p_values"):
            if hasattr(owner, method):
                assert "Union[" not in str(inspect.signature(getattr(owner, method)))
    assert "Union[" not in str(inspect.signature(vicinal.compare))
