"""How pytest runs the examples in docstrings: modules that need a missing extra are left out, and long examples are slow tests."""

from importlib import import_module
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent
# Packages of extras that the tests do without.
EXTRAS = {"dask", "distributed", "faiss", "onnx", "sentence_transformers", "torch", "triton", "zarr"}
# Modules whose examples take many seconds.
LONG = {
    "vicinal._datasets.demo_sets",
    "vicinal._datasets.spiral",
    "vicinal._lca.lca_gauss",
    "vicinal._local.local_lca",
    "vicinal._nca.soft_neighbors",
    "vicinal._plot.metric_field",
}


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out files without examples, and modules that import an extra that is not installed."""
    if collection_path.suffix != ".py":
        return None
    if collection_path == Path(__file__) or ">>>" not in collection_path.read_text(encoding="utf-8"):
        return True
    try:
        import_module(".".join(collection_path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"))
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in EXTRAS:
            raise  # a fault of ours, and no reason to skip
        return True
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark long examples as slow."""
    for item in items:
        if isinstance(item, pytest.DoctestItem) and item.name.startswith(tuple(LONG)):
            item.add_marker(pytest.mark.slow)
