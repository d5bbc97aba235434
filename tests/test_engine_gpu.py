"""The laws of the pair engine on a CUDA device: ``python -m pytest -m gpu``.

The laws are those of `test_engine.py`.  Here the torch backend is tested with each of its methods on a GPU.
"""

import inspect
import os

import numpy as np
import pytest
import test_engine as laws
import test_engine_frames as frame_laws
from needs import needs

from vicinal._engine import Match

torch = needs("torch")
if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("there is no CUDA device", allow_module_level=True)

pytestmark = pytest.mark.gpu


def fused(patch):
    """The methods that the placement chooses by itself."""


def tile_centres(patch):
    # Products about the centres of wide tiles may err by 2e-4 in an exponent, as `accuracy.py` allows: of pulls of 13 that
    # cancel to 0.1, an error of 4e-5 is left.
    patch.setitem(laws.TOLERANCE, "float32", 5e-4)
    from vicinal._engine.cuda.placed import CudaPlaced

    patch.setattr(CudaPlaced, "_tiles", lambda self, largest=0.0: self._by_differences)


def pruned(patch):
    patch.setitem(laws.TOLERANCE, "float32", 5e-4)  # about tile centres
    from vicinal._engine import tuning

    for name, value in (("GPU_PRUNED_FROM", 0), ("GPU_PRUNED_QUERIES", 0), ("GPU_PRUNED_SHARE", 1.0)):
        patch.setattr(tuning, name, value)


def each_pair_twice(patch):
    from vicinal._engine.cuda.placed import CudaPlaced

    patch.setattr(CudaPlaced, "_half", lambda *_, **__: None)


def torch_operations(patch):
    from vicinal._engine.cuda.backend import TorchBackend

    patch.setattr(TorchBackend, "_find_kernels", lambda self: False)


@pytest.fixture(
    params=[fused, tile_centres, pruned, each_pair_twice, torch_operations], ids=lambda force: force.__name__
)
def kind(request, monkeypatch):
    """The torch backend, forced to use one of its methods on a GPU."""
    if request.param is not torch_operations:
        needs("triton")
    request.param(monkeypatch)
    return "torch"


# Every law that asks for a backend; not those of the compiled backend alone.
globals().update(
    {
        name: law
        for name, law in vars(laws).items()
        if name.startswith("test_") and "kind" in inspect.signature(law).parameters
    }
)


@laws.precisions
@pytest.mark.parametrize(("n", "D", "d", "noise"), frame_laws.SHAPES)
def test_every_reduction_of_frames_equals_its_formula(kind, dtype, n, D, d, noise):
    frame_laws.test_every_reduction_equals_its_formula(kind, dtype, n, D, d, noise)
    frame_laws.test_a_table_serves_every_depth_and_noise(kind, dtype, n, D, d, noise)


# Of float32 on a GPU: nats of a log-sum, and the relative error of a scatter.
ERRORS = {"log_sums": 1e-4, "scatter": 1e-6}


def many_rows(dtype, n=5000, d=6, gap=0.0):
    """Rows in three clusters and a row far away, with classes."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    X[: n // 3] += gap
    X[n // 2 :, 1] -= gap
    X[7] += 15.0  # underflows under the common shift in float32
    X = np.round(X * 2**12) / 2**12  # whole multiples, which float32 holds beside the gap
    return X.astype(dtype), rng.integers(0, 4, n)


@laws.precisions
@pytest.mark.parametrize("gap", [0.0, 500.0])
def test_two_runs_give_the_same_bits(kind, dtype, gap):
    X, codes = many_rows(dtype, gap=gap)
    first, second = (laws.everything(laws.placed_rows(kind, X, match=Match("class", codes))) for _ in range(2))
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("gap", [0.0, 500.0])
def test_float32_keeps_its_digits_in_any_frame(kind, gap):
    """Log-sums to 1e-4 nats and scatters to 1e-6, among clusters that are far apart as well."""
    X, codes = many_rows("float32", gap=gap)
    got = laws.placed_rows(kind, X, match=Match("class", codes))
    exact = laws.placed_rows("reference", X.astype(float), match=Match("class", codes))
    scatter, expected = got.scatter(), exact.scatter()
    others = np.arange(len(X)) != 7  # a log-sum of -600, to which 1e-4 is the last digit of float32
    assert np.abs(scatter.log_sums - expected.log_sums)[others].max() < ERRORS["log_sums"]
    half = got.placed._half(got.problem.queries(None, None)) if hasattr(got.placed, "_half") else None
    if gap > 0 and half is None:  # row by row, as on every backend, a pull is left of products about one centre
        laws.assert_close(scatter.scatter, expected.scatter, "float32")
        return
    assert np.linalg.norm(scatter.scatter - expected.scatter) < ERRORS["scatter"] * np.linalg.norm(expected.scatter)
    laws.assert_close(got.pull().pull, exact.pull().pull, "float32")


@laws.precisions
@pytest.mark.parametrize("d", [30, 100, 150])
def test_many_coordinates_and_values(kind, dtype, d):
    """Wider tiles, values in several groups of columns, and more coordinates than the kernels take."""
    case = laws.Case(dtype, n=300, d=d, weights=False)
    placed, expected = case.at(kind, case.match("class")), case.softmax("all")
    images = case.coordinates("all", "images")
    values = np.random.default_rng(1).normal(size=(300, 200)).astype(dtype)
    laws.assert_close(placed.log_sums(), expected.log_sums, dtype)
    laws.assert_close(placed.softmax_means(values).means, expected.weights @ values, dtype)
    laws.assert_close(placed.scatter().scatter, laws.literal_scatter(expected.weights, images, images), dtype)
    r = case.row_weights("all")
    laws.assert_close(placed.pull(r).pull, case.pull("class", "all", "accuracy")[1], dtype)


@pytest.mark.parametrize("gap", [0.0, 500.0])
def test_ordinary_rows_are_done_by_fused_kernels(monkeypatch, kind, gap):
    """Nothing is left to torch's operations, which need ten times as long."""
    from vicinal._engine.reference import arrays as _arrays

    X, codes = many_rows("float32", gap=gap)
    placed = laws.placed_rows(kind, X, match=Match("class", codes))
    if not placed.problem._rows._has_kernels:
        pytest.skip("this way has no fused kernels")
    monkeypatch.setattr(_arrays, "_BlockScorer", None)
    placed.log_sums()
    placed.scatter()
    placed.gradient()
    placed.softmax_means(X, X[:100])
    placed.class_shares(X[:100])


def test_too_little_memory_on_the_device_makes_smaller_blocks(kind, monkeypatch):
    torch = needs("torch")
    X, codes = many_rows("float32", n=2000)
    expected = laws.placed_rows(kind, X, match=Match("class", codes)).scatter().scatter
    placed = laws.placed_rows(kind, X, match=Match("class", codes))
    if not placed.problem._rows._has_kernels:
        pytest.skip("torch's operations are cut into blocks beforehand")
    from vicinal._engine.cuda import placed as _cuda

    real, memory = _cuda.CudaPlaced._tiles, placed.problem._rows.memory

    def scarce(self, largest=0.0):
        if self._backend.memory > memory // 8:
            raise torch.OutOfMemoryError
        return real(self, largest)

    monkeypatch.setattr(_cuda.CudaPlaced, "_tiles", scarce)
    laws.assert_close(placed.scatter().scatter, expected, "float32")
    assert placed.problem._rows.memory == memory // 8


def test_kernels_that_the_device_has_no_room_for_are_left_to_torch(kind, monkeypatch):
    X, codes = many_rows("float64", n=300)
    placed = laws.placed_rows(kind, X, match=Match("class", codes))
    if not placed.problem._rows._has_kernels:
        pytest.skip("this way has no fused kernels")
    expected = placed.scatter().scatter, placed.log_sums(X[:20] + 0.5)
    from vicinal._engine.cuda import once as _half_cuda
    from vicinal._engine.cuda import pruned as _pruned_cuda
    from vicinal._engine.cuda import rows as _rows_cuda

    class OutOfResources(Exception):
        """What Triton raises."""

    class Refused:
        def __getattr__(self, name):
            raise OutOfResources("out of resource: shared memory")

    for module in (_half_cuda, _pruned_cuda, _rows_cuda):
        monkeypatch.setattr(module, "kernels", Refused())
    placed = laws.placed_rows(kind, X, match=Match("class", codes))
    with pytest.warns(RuntimeWarning, match="Triton cannot compile kernels for this device"):
        scatter = placed.scatter().scatter
    laws.assert_close(scatter, expected[0])
    laws.assert_close(placed.log_sums(X[:20] + 0.5), expected[1])


@laws.precisions
def test_pruned_sums_keep_their_certificate(dtype):
    """The sums of the rows lack no more than what is certified, and the certificate is at most the requested error."""
    torch = needs("torch")
    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA device")
    from vicinal._engine.cuda.pruned import PrunedHalf

    X, codes = many_rows(dtype, n=40_000, d=3, gap=30.0)
    X, match = 12.0 * X, Match("class", codes)
    rounding = {"float64": 1e-10, "float32": 2e-4}[dtype]  # what `accuracy.py` allows products
    dense = laws.placed_rows("torch", X, match=match, error=0)
    assert not isinstance(dense.placed._half(dense.problem.queries(None, None)), PrunedHalf)
    exact, found = dense.log_sums(), {}
    for error in (1e-2, 1e-4, None):
        placed = laws.placed_rows("torch", X, match=match, error=error)
        half = placed.placed._half(placed.problem.queries(None, None))
        assert isinstance(half, PrunedHalf)
        assert half.share < 0.3
        missing, certified = exact - placed.log_sums(), placed.problem.certified_row_error
        others = np.arange(len(X)) != 7  # which is done again over all points
        assert missing[others].min() > -rounding
        assert missing[others].max() < np.log1p(certified) + rounding
        assert 0 < certified <= (error or 1e-7)
        found[error] = half.share
    assert found[1e-2] < found[1e-4] < found[None]
    laws.assert_close(placed.scatter().scatter, dense.scatter().scatter, dtype)
    laws.assert_close(placed.gradient().pull, dense.gradient().pull, dtype)
    assert dense.problem.certified_row_error == 0


@laws.precisions
def test_pruned_sums_of_new_queries_keep_their_certificate(dtype):
    torch = needs("torch")
    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA device")
    X, _ = many_rows(dtype, n=40_000, d=3, gap=30.0)
    X = 12.0 * X
    rng = np.random.default_rng(1)
    queries = (X[rng.permutation(len(X))] + rng.normal(size=X.shape)).astype(dtype)
    queries[0] = 1e4  # far from every point
    positions = np.arange(0, len(X), 2)
    rounding = {"float64": 1e-10, "float32": 2e-4}[dtype]
    dense = laws.placed_rows("torch", X, error=0)
    for error in (1e-2, None):
        placed = laws.placed_rows("torch", X, error=error)
        for asked in (queries, positions):
            exact, found = dense.log_sums(asked), placed.log_sums(asked)
            certified = placed.problem.certified_row_error
            allowed = rounding * np.maximum(1.0, np.abs(exact) * 1e-3)
            assert (np.abs(exact - found) <= np.log1p(certified) + allowed).all()
            assert certified <= (error or {"float64": 1e-12, "float32": 1e-7}[dtype])
        assert placed.placed._pruned_softmax(placed.placed._query_images(placed.problem.queries(queries, None)), None)
    np.testing.assert_allclose(placed.perplexities(), dense.perplexities(), rtol=1e-3)


def test_pruned_sums_over_class_mates_are_as_accurate(monkeypatch):
    """A row whose class mates are far away keeps the digits of its agreement, which a bound of its whole sum would lose."""
    torch = needs("torch")
    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA device")
    X, _ = many_rows("float64", n=40_000, d=2, gap=0.0)
    X *= 20.0
    codes = (X[:, 0] > 0).astype(int)
    codes[np.argsort(X[:, 0])[:200]] = 1  # in the middle of the other class
    match = Match("class", codes)
    dense, placed = (laws.placed_rows("torch", X, match=match, error=error) for error in (0, 1e-6))
    ours, truth = (p.pull(objective="likelihood") for p in (placed, dense))
    np.testing.assert_allclose(ours.log_agreement, truth.log_agreement, rtol=0, atol=2e-6)
    assert placed.problem.certified_row_error <= 1e-6


def test_bound_of_near_boxes_is_that_of_their_farther_points():
    """A pair at a distance u adds ``u^2 exp(-u^2 / 2)`` to a scatter, which is largest at sqrt(2), not where the boxes are nearest."""
    torch, _ = needs("torch", "triton")
    from vicinal._engine.cuda.triton_pruned import skipped_sums

    device = "cuda" if torch.cuda.is_available() else "cpu"
    for distance in np.sqrt([0.7, 1.0, 1.9, 2.0, 4.0]):
        here, there = (torch.full((1, 1), float(at), dtype=torch.float64, device=device) for at in (0.0, distance))
        mass, least = (torch.zeros(1, dtype=torch.float64, device=device) for _ in range(2))
        bound = torch.zeros((1, 1, 2), dtype=torch.float64, device=device)
        half = 0.5 * np.log2(np.e)
        skipped_sums[(1, 1)](here, here, there, there, mass, least, bound, 1, 1, 1, 0.0, 1.0, half, 60.0, 1.0, D=1, BI=1, BJ=1, T=2)  # fmt: skip
        distances = np.linspace(distance, 6.0, 1000)
        assert bound.min() >= np.max(distances**2 * np.exp(-(distances**2) / 2)) * (1 - 1e-12)
