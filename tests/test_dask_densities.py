"""Test where the rows of a density are: on the workers of a Dask cluster, as one object or in blocks, until they are gathered."""

import copy
import gc
import os
import pickle
import signal
import warnings

import numpy as np
import pandas as pd
import pytest
from needs import needs
from scipy.special import logsumexp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

dask, distributed, da, dd = needs("dask", "distributed", "dask.array", "dask.dataframe")

from dask_workers import clustered, wait_for_two_workers, wait_until  # noqa: E402

from vicinal import (  # noqa: E402
    LCA,
    DensityClassifier,
    DensityOutlierDetector,
    Engine,
    LCAGauss,
    ManifoldParzen,
    ParzenWindows,
    io,
)
from vicinal._dask import distant_rows, spread_scores  # noqa: E402
from vicinal._dask.distant_rows import DistantRows, block_edges  # noqa: E402
from vicinal._dask.rows import DaskRows, RowsInParts  # noqa: E402
from vicinal._dask.spread_scores import joined_blocks  # noqa: E402
from vicinal._engine import merged_log_sums  # noqa: E402
from vicinal._mixtures.spread_mixture import SpreadMixture  # noqa: E402

X = clustered(240, 3)[0]
FRAME = pd.DataFrame(X, columns=["a", "b", "c"])
MANY = clustered(9000, 4)[0]  # more than the working memory of `SMALL` takes
NEW = MANY[::30] + 0.3
SMALL = Engine(memory="1 MB")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Let a block have two to four thousand rows, so that a density of few rows has several."""
    monkeypatch.setattr(distant_rows, "LEAST_BLOCK", 2**16)
    monkeypatch.setattr(distant_rows, "MOST_BLOCK", 2**17)


def in_chunks(rows, size=700):
    return da.from_array(rows, chunks=(size, *rows.shape[1:]))


def quietly(estimator, *rows, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return clone(estimator).fit(*rows, **options)


def stochastic(method, **options):
    return method(reg=0.0, solver="stochastic", max_iter=2, random_state=0, engine=SMALL, **options)


def mapped(rows, folder):
    np.save(folder / "rows.npy", rows)
    return np.load(folder / "rows.npy", mmap_mode="r")


def is_spread(estimator):
    return isinstance(estimator.mixture_, SpreadMixture) and len(estimator.mixture_.blocks) > 1


def keys_of_workers(client, name="vicinal"):
    held = client.run(lambda dask_worker: [str(key) for key in dask_worker.data])
    return [key for keys in held.values() for key in keys if name in key]


def tasks_of_scheduler(client):
    return set(client.run_on_scheduler(lambda dask_scheduler: [str(key) for key in dask_scheduler.tasks]))


# -- blocks -----------------------------------------------------------------------------------------------------------


def test_partitions_are_joined_and_divided_into_blocks():
    lengths = [10, 0, 5, 3000, 9000, 1, 1]
    edges = block_edges(lengths, 32)  # between 2048 and 4096 rows
    assert edges == [(0, 3015), (3015, 6015), (6015, 9015), (9015, 12015), (12015, 12017)]
    assert block_edges([4], 32) == [(0, 4)]
    assert block_edges([0, 0], 32) == []


@pytest.mark.parametrize("known", [True, False])
def test_the_number_of_tasks_is_limited(monkeypatch, known):
    """Blocks of rows are joined if they are small, or if there are too many."""
    monkeypatch.setattr(spread_scores, "LEAST_ROWS", 100)
    monkeypatch.setattr(spread_scores, "MOST_TASKS", 60)
    lengths = np.full(1000, 50.0 if known else np.nan)
    for n_components, expected in ((1, 500 if known else 1000), (30, 2)):
        groups = joined_blocks(lengths, n_components)
        assert [place for group in groups for place in range(*group)] == list(range(1000))
        most = min(expected, 60 // n_components)
        assert 0.9 * most <= len(groups) <= most


def test_merged_sums_of_blocks():
    """Blocks without terms, and logarithms far beyond the range of exp."""
    found = np.array([[-np.inf, -1e4, 900.0, 1.0], [-np.inf, -1e4, -900.0, -np.inf], [-np.inf, -np.inf, 899.0, 2.0]])
    np.testing.assert_allclose(merged_log_sums(found), logsumexp(found, axis=0), rtol=1e-15)
    np.testing.assert_array_equal(merged_log_sums(found[:1]), found[0])


# -- sources of rows --------------------------------------------------------------------------------------------------


def test_a_source_of_rows(client):
    source = DaskRows(dd.from_pandas(FRAME, npartitions=3))
    assert (source.shape, source.dtype, source.columns) == ((240, 3), np.dtype(np.float64), ["a", "b", "c"])
    np.testing.assert_array_equal(np.concatenate(list(source.blocks(start=90))), X[90:])
    some = np.array([239, 3, 3, 100])
    np.testing.assert_array_equal(source.take(some), X[some])


# -- densities in blocks ----------------------------------------------------------------------------------------------

WEIGHTS = {
    "equal": None,
    "some": np.random.default_rng(1).random(len(MANY)) * (np.arange(len(MANY)) >= 3000),  # whole blocks have weight 0
    "one": np.where(np.arange(len(MANY)) == 4000, 1e9, 1.0),
}


@pytest.mark.parametrize(
    ("bandwidth", "weights"),
    [(1.0, "equal"), (1.0, "one"), ([1.0, 2.0, 1.0, 0.5], "some"), (np.eye(4) + 0.3, "equal"), ("scott", "some"),
     ("scott", "one"), ("silverman", "equal")],
)  # fmt: skip
def test_parzen_windows_stay_on_the_workers(client, bandwidth, weights):
    weight = WEIGHTS[weights]
    estimator = ParzenWindows(bandwidth, engine=SMALL)
    if weights == "one" and isinstance(bandwidth, str):
        with pytest.raises(ValueError, match="effective number of rows greater than 1"):
            clone(estimator).fit(in_chunks(MANY), sample_weight=in_chunks(weight))
        return
    here = clone(estimator).fit(MANY, sample_weight=weight)
    there = clone(estimator).fit(in_chunks(MANY), sample_weight=None if weight is None else in_chunks(weight))
    assert is_spread(there)
    np.testing.assert_allclose(there.covariance_, here.covariance_, rtol=1e-13, atol=1e-13)
    here.mixture_ = here.mixture_.__class__(
        here.mixture_.centres, there.covariance_, None if weight is None else here.mixture_.log_weights, SMALL
    )
    expected = here.score_samples(NEW)
    np.testing.assert_allclose(there.score_samples(NEW), expected, rtol=1e-12)
    lazy = there.score_samples(in_chunks(NEW, 70))
    assert (lazy.shape, lazy.dtype, lazy.chunks) == (expected.shape, expected.dtype, ((70, 70, 70, 70, 20),))
    np.testing.assert_allclose(lazy.compute(), expected, rtol=1e-12)
    np.testing.assert_allclose(there.score_samples(), here.score_samples(), rtol=1e-12, atol=1e-12)
    home = copy.deepcopy(there).gather()
    np.testing.assert_array_equal(home.mixture_.centres, MANY)
    np.testing.assert_allclose(np.exp(home.mixture_.log_weights), np.exp(here.mixture_.log_weights), rtol=1e-12)


def test_single_precision(client):
    """As accurate as the density in this process, even if rows are far from the origin."""
    rows = (np.vstack([MANY, MANY[::-1] + 0.1]) + 1000.0).astype(np.float32)
    new = rows[::30] + np.float32(0.3)
    exact = ParzenWindows(1.0).fit(rows.astype(np.float64)).score_samples(new.astype(np.float64))
    here, there = ParzenWindows(1.0, engine=SMALL).fit(rows), ParzenWindows(1.0, engine=SMALL).fit(in_chunks(rows))
    assert is_spread(there)
    assert there.gather().mixture_.centres.dtype == np.float32
    error = np.abs(here.score_samples(new) - exact).max()
    assert np.abs(there.score_samples(new) - exact).max() <= 2.0 * error
    assert there.score_samples(in_chunks(new)).dtype == np.float64


def test_dataframes_with_unknown_sizes_and_empty_partitions(client):
    """Names of columns are kept, and so are the partitions of the rows that are scored."""
    frame = pd.DataFrame(MANY, columns=list("abcd")).assign(w=np.arange(len(MANY)) % 3 + 0.5)
    table = dd.from_pandas(frame, npartitions=9)
    table = dd.concat([table[table.a < 30.0], table[table.a > 1e9]])
    some = frame[frame.a < 30.0]
    here = ParzenWindows("scott", engine=SMALL).fit(some[list("abcd")], sample_weight=some.w)
    there = ParzenWindows("scott", engine=SMALL).fit(table[list("abcd")], sample_weight=table.w)
    assert is_spread(there)
    assert list(there.feature_names_in_) == list("abcd")
    scores = there.score_samples(table[list("abcd")])
    assert scores.npartitions == table.npartitions
    np.testing.assert_allclose(scores.compute(), here.score_samples(some[list("abcd")]), rtol=1e-11)
    other = dd.from_pandas(frame.iloc[::-1].reset_index(), npartitions=9)
    other = dd.concat([other[other.a < 30.0], other[other.a > 1e9]])
    with pytest.raises(ValueError, match=r"partition 0 of X has \d+ rows and that of sample_weight"):
        ParzenWindows(1.0, engine=SMALL).fit(table[list("abcd")], sample_weight=other.w)


def test_constant_columns_and_missing_values(client):
    rows = np.column_stack([MANY, np.full(len(MANY), 7.0)])
    there, here = ParzenWindows("scott", engine=SMALL), ParzenWindows("scott", engine=SMALL)
    for density, table in ((here, rows), (there, in_chunks(rows))):
        with pytest.warns(UserWarning, match="1 of 5 columns is constant"):
            density.fit(table)
    assert is_spread(there)
    np.testing.assert_array_equal(there.constant_values_, [7.0])
    np.testing.assert_allclose(there.score_samples(rows[:50]), here.score_samples(rows[:50]), rtol=1e-11)
    with pytest.raises(ValueError, match="all 9000 rows are equal"):
        ParzenWindows("scott", engine=SMALL).fit(in_chunks(np.ones((9000, 4))))
    with pytest.raises(ValueError, match="contains infinity"):
        ParzenWindows(1.0, engine=SMALL).fit(in_chunks(np.where(MANY[10, 0] == MANY, np.inf, MANY)))
    gap = MANY.copy()
    gap[10, 0] = np.nan
    there = ParzenWindows(1.0, engine=SMALL)
    gaps = quietly(
        there, in_chunks(gap[:7000])
    )  # found by passes over all rows, in this process; stored on the workers
    assert is_spread(gaps)
    assert np.isfinite(gaps.gather().mixture_.centres).all()
    with pytest.raises(ValueError, match=r"contains NaN in the columns 0: LCA does not accept"):
        stochastic(LCA).fit(in_chunks(gap))


@pytest.fixture
def no_rows_here(monkeypatch):
    """Let it be an error if this process gets all rows of a collection, or more of them at once than it may hold."""
    take, most = RowsInParts.take, SMALL.memory_bytes // (5 * MANY.shape[1] * 8)

    def some(self, positions):
        assert len(positions) <= most
        return take(self, positions)

    def refused(self, *_):
        if len(self) > most:
            raise AssertionError("all rows are in this process")
        return blocks(self)

    blocks = RowsInParts.blocks
    monkeypatch.setattr(RowsInParts, "take", some)
    for kind, method in ((RowsInParts, "blocks"), (DistantRows, "__array__"), (DaskRows, "kept")):
        monkeypatch.setattr(kind, method, refused)


def received():
    """Return the bytes that this process has received from workers and the scheduler since the first call."""
    from distributed.comm import tcp
    from distributed.utils import nbytes

    if not hasattr(tcp, "received_here"):
        tcp.received_here, from_frames = 0, tcp.from_frames

        async def counted(frames, *args, **options):
            tcp.received_here += sum(map(nbytes, frames))
            return await from_frames(frames, *args, **options)

        tcp.from_frames = counted
    return tcp.received_here


@pytest.mark.parametrize("bandwidth", [1.0, "scott"])
def test_a_fit_moves_no_rows_into_this_process(client, no_rows_here, monkeypatch, bandwidth):
    monkeypatch.setattr(distant_rows, "LEAST_BLOCK", 2**22)
    monkeypatch.setattr(distant_rows, "MOST_BLOCK", 2**23)
    rows = da.random.default_rng(0).normal(size=(200_000, 20), chunks=(20_000, 20)).persist()
    distributed.wait(rows)
    before = received()
    density = ParzenWindows(bandwidth, engine=SMALL).fit(rows)
    distributed.wait(density.mixture_.blocks)
    assert received() - before < 0.05 * rows.nbytes


@pytest.mark.parametrize("weights", ["equal", "some"])
@pytest.mark.parametrize("method", [LCA, LCAGauss])
def test_a_stochastic_fit_draws_from_a_collection(client, tmp_path, method, weights, no_rows_here):
    """More rows than the working memory takes stay where they are: the fit is that of the same rows in a file."""
    weight, estimator = WEIGHTS[weights], stochastic(method)
    here = quietly(estimator, mapped(MANY, tmp_path), sample_weight=weight)
    there = quietly(estimator, in_chunks(MANY), sample_weight=weight)
    if method is LCA:
        np.testing.assert_array_equal(there.components_, here.components_)
    else:  # moments are sums over partitions
        np.testing.assert_allclose(there.components_, here.components_, rtol=1e-8, atol=1e-8)
    assert is_spread(there)
    assert there.effective_neighbors_.shape == here.effective_neighbors_.shape
    near = {"rtol": 1e-11 if method is LCA else 1e-7}
    expected = here.score_samples(NEW)
    np.testing.assert_allclose(there.score_samples(NEW), expected, **near)
    np.testing.assert_allclose(there.score_samples(in_chunks(NEW)).compute(), expected, **near)
    np.testing.assert_allclose(there.score_samples(), here.score_samples(), **near)


@pytest.mark.parametrize("method", [LCA, LCAGauss])
def test_an_exact_fit_to_many_rows_leaves_them_in_blocks(client, method):
    """The fit is that of the rows in memory; nothing of them stays in this process."""
    estimator = method(reg=0.0, solver="em", max_iter=2, engine=SMALL)
    rows = MANY[:7000]
    here, there = quietly(estimator, rows), quietly(estimator, in_chunks(rows))
    np.testing.assert_array_equal(there.components_, here.components_)
    assert is_spread(there)
    assert len(pickle.dumps(there)) < rows.nbytes / 2
    np.testing.assert_allclose(there.score_samples(NEW), here.score_samples(NEW), rtol=1e-12)
    np.testing.assert_allclose(there.score_samples(), here.score_samples(), rtol=1e-12, atol=1e-12)
    there.gather()
    np.testing.assert_array_equal(there.mixture_.centres, here.mixture_.centres)
    if method is LCAGauss:
        np.testing.assert_array_equal(there.rows_, here.rows_)


@pytest.mark.parametrize(
    ("density", "largest_group"),
    [
        (ParzenWindows("scott", engine=SMALL), 0.1),
        pytest.param(stochastic(LCA), None, marks=pytest.mark.slow),
        pytest.param(stochastic(LCAGauss), 0.1, marks=pytest.mark.slow),
    ],
    ids=["ParzenWindows", "LCA", "LCAGauss"],
)
def test_outlier_detectors(client, tmp_path, density, largest_group, no_rows_here):
    """The scores are those of a detector whose rows are in a file: training rows have no third score."""
    estimator = DensityOutlierDetector(density, largest_group=largest_group)
    there, in_file = quietly(estimator, in_chunks(MANY)), quietly(density, mapped(MANY, tmp_path))
    here = DensityOutlierDetector.from_density(in_file, largest_group=largest_group)
    assert is_spread(there.density_)
    near = {"rtol": 1e-10 if not isinstance(density, LCAGauss) else 1e-6}
    np.testing.assert_allclose(there.training_scores_, here.training_scores_, **near)
    assert np.mean(there.labels_ == here.labels_) > 0.999
    new = np.vstack([NEW, 100.0 + NEW[:3]])
    for name in ("score_samples", "decision_function", "p_values", "predict"):
        expected, lazy = getattr(here, name)(new), getattr(there, name)(in_chunks(new, 90))
        assert (lazy.shape, lazy.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_allclose(lazy.compute(), expected, atol=1e-3 if name == "p_values" else 1e-6)
        np.testing.assert_allclose(getattr(there, name)(new), lazy.compute(), rtol=1e-12)
    with pytest.raises(RuntimeError, match=r"on the workers of a Dask cluster.*gather\(\)"):
        there.explain(new[:2])


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "density",
    [ParzenWindows(1.0, engine=SMALL), pytest.param(stochastic(LCA), marks=pytest.mark.slow)],
    ids=["ParzenWindows", "LCA"],
)
def test_classifiers(client, density, weighted, no_rows_here):
    """A column that is constant in a class has a Gaussian there; one class is small."""
    rows, labels = clustered(16_000, 4, seed=3)[0], np.repeat(["a", "b", "c"], [7500, 7500, 1000])
    rows = rows[np.random.default_rng(0).permutation(16_000)] + (labels == "b")[:, None] * np.array(
        [1.0, 0.0, 3.0, 0.0]
    )
    order = np.random.default_rng(1).permutation(16_000)
    rows, labels = rows[order], labels[order]
    rows[labels == "b", 1] = 2.0
    weight = np.random.default_rng(2).random(16_000) * (np.arange(16_000) % 50 > 0) if weighted else None
    estimator = DensityClassifier(density)
    here = quietly(estimator, rows, labels, sample_weight=weight)
    there = quietly(estimator, in_chunks(rows), in_chunks(labels), sample_weight=weight)
    spread = [isinstance(one.mixture_, SpreadMixture) for one in there.densities_]
    assert spread == [True, True, isinstance(density, ParzenWindows)]
    np.testing.assert_array_equal(there.classes_, here.classes_)
    np.testing.assert_allclose(there.priors_, here.priors_, rtol=1e-13)
    np.testing.assert_allclose(there.constant_variances_, here.constant_variances_, rtol=1e-12)
    if isinstance(density, LCA):  # other draws than those of rows in memory
        for one, other in zip(here.densities_, there.densities_, strict=True):
            assert one.components_.shape == other.components_.shape
        here = copy.deepcopy(there).gather()
    new = rows[::40] + 0.1
    expected, lazy = here.predict_proba(new), there.predict_proba(in_chunks(new, 90))
    assert (lazy.shape, lazy.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(lazy.compute(), expected, rtol=1e-10, atol=1e-14)
    np.testing.assert_array_equal(there.predict(new), here.predict(new))
    assert there.score(in_chunks(new, 90), in_chunks(labels[::40], 90)) == here.score(new, labels[::40])


# -- references -------------------------------------------------------------------------------------------------------


def test_the_rows_are_held_as_long_as_the_density(client):
    """They outlive the user's collection; a second fit releases those of the first, and the last reference to it all of them."""
    wait_until(lambda: not gc.collect() and not keys_of_workers(client))
    before = tasks_of_scheduler(client)
    fitted = [ParzenWindows(1.0, engine=SMALL).fit(in_chunks(MANY).persist())]
    expected = fitted[0].score_samples(NEW)

    def blocks():
        return {future.key for future in fitted[0].mixture_.blocks}

    first = blocks()
    wait_until(lambda: set(keys_of_workers(client)) == first)
    np.testing.assert_array_equal(fitted[0].score_samples(NEW), expected)
    fitted[0].fit(in_chunks(MANY + 1.0))
    wait_until(lambda: set(keys_of_workers(client)) == blocks() != first)
    for again in (copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))):
        fitted[0] = again(fitted[0])  # the copy holds the rows by itself
        gc.collect()
        np.testing.assert_allclose(fitted[0].score_samples(NEW + 1.0), expected, rtol=1e-9)
    fitted.clear()
    wait_until(lambda: not gc.collect() and not tasks_of_scheduler(client) - before)


@pytest.mark.parametrize("method", [LCA, LCAGauss])
def test_copies_and_model_files(client, tmp_path, method):
    model = quietly(stochastic(method), in_chunks(MANY))
    expected = model.score_samples(NEW)
    for again in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model), copy.copy(model)):
        np.testing.assert_array_equal(again.score_samples(NEW), expected)
    assert not hasattr(clone(model), "mixture_")
    with pytest.raises(TypeError, match=r"never holds a reference.*gather\(\).*keep='metric'"):
        io.save(model, tmp_path / "model.vicinal")
    io.save(model, tmp_path / "thin.vicinal", training_rows=False)
    np.testing.assert_array_equal(io.load(tmp_path / "thin.vicinal").components_, model.components_)
    for use in (lambda: model.sample(3), lambda: model.marginal([0]), lambda: model.mixture_.centres):
        with pytest.raises(RuntimeError, match=r"9000 components of this density are on the workers.*Call gather\(\)"):
            use()
    model.gather()
    np.testing.assert_allclose(model.score_samples(NEW), expected, rtol=1e-11)
    io.save(model, tmp_path / "model.vicinal")
    np.testing.assert_array_equal(io.load(tmp_path / "model.vicinal").score_samples(NEW), model.score_samples(NEW))


def test_a_metric_does_not_need_the_rows(client):
    """`transform` of a collection depends on no component."""
    model = quietly(stochastic(LCA), in_chunks(MANY))
    images = model.transform(in_chunks(NEW))
    assert not [key for key in dict(images.__dask_graph__()) if "vicinal-density" in str(key)]
    np.testing.assert_array_equal(images.compute(), model.transform(NEW))


@pytest.mark.parametrize("method", [LCA, LCAGauss, ParzenWindows])
def test_a_sample_is_kept(client, method):
    engine = Engine(memory="1 MB", keep=50)
    estimator = (
        ParzenWindows(1.0, engine=engine) if method is ParzenWindows else stochastic(method).set_params(engine=engine)
    )
    weight = (np.arange(len(MANY)) % 2).astype(float)
    model = quietly(estimator, in_chunks(MANY), sample_weight=weight).gather()
    assert model.mixture_.centres.shape == (50, 4)
    kept = model.rows_ if method is LCAGauss else model.mixture_.centres
    assert all((row == MANY[1::2]).all(axis=1).any() for row in kept)
    if method is not ParzenWindows:
        bare = quietly(estimator.set_params(engine=Engine(memory="1 MB", keep="metric")), in_chunks(MANY))
        assert bare.transform(NEW).shape[0] == len(NEW)
        with pytest.raises(NotFittedError, match="it has no density"):
            bare.score_samples(NEW)


def test_blocks_on_a_lost_worker_are_computed_again(client):
    density = ParzenWindows(1.0, engine=SMALL).fit(da.random.default_rng(0).normal(size=(9000, 4), chunks=(700, 4)))
    expected = density.score_samples(NEW)
    os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
    np.testing.assert_array_equal(density.score_samples(NEW), expected)
    assert density.gather().mixture_.centres.shape == (9000, 4)
    wait_for_two_workers(client)


def test_blocks_that_cannot_be_computed_again_are_an_error(client):
    """Rows that the user sent to the workers are lost with them."""
    sent = client.scatter([MANY[first : first + 3000] for first in range(0, 9000, 3000)])
    rows = da.concatenate([da.from_delayed(dask.delayed(part), (3000, 4), float) for part in sent])
    density = ParzenWindows(1.0, engine=SMALL).fit(rows)
    density.score_samples(NEW)
    for process in client.run(os.getpid).values():
        os.kill(process, signal.SIGKILL)
    with pytest.raises(RuntimeError, match=r"(?i)workers that held .* have left.*Fit the density again"):
        density.score_samples(NEW)
    with pytest.raises(
        RuntimeError, match=r"9000 components of this density are not on the workers.*any more.*Fit the density again"
    ):
        density.gather()
    wait_for_two_workers(client)


# -- small densities --------------------------------------------------------------------------------------------------


def test_a_small_density_is_one_object_until_it_is_gathered(client, tmp_path):
    rows = da.from_array(X, chunks=(100, 3))
    here, model = LCA(reg=0.0).fit(X), LCA(reg=0.0).fit(rows)
    assert isinstance(model.components_, np.ndarray)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.score_samples(X), here.score_samples(X))
    assert clone(model).get_params() == LCA(reg=0.0).get_params()
    with pytest.raises(RuntimeError, match=r"240 components of this density are on the workers.*Call gather\(\)"):
        model.sample(3)
    np.testing.assert_array_equal(model.score_samples(), here.score_samples())
    with pytest.raises(TypeError, match=r"never holds a reference.*gather\(\).*keep='metric'"):
        io.save(model, tmp_path / "model.vicinal")
    io.save(model, tmp_path / "thin.vicinal", training_rows=False)
    np.testing.assert_array_equal(io.load(tmp_path / "thin.vicinal").components_, model.components_)
    assert model.gather() is model
    np.testing.assert_array_equal(model.score_samples(), here.score_samples())
    io.save(model, tmp_path / "model.vicinal")
    np.testing.assert_array_equal(io.load(tmp_path / "model.vicinal").score_samples(X), here.score_samples(X))


@pytest.mark.parametrize(
    "estimator", [LCAGauss(reg=0.0), ManifoldParzen(1, 10), ParzenWindows("loo")], ids=lambda e: type(e).__name__
)
def test_scores_of_training_rows_of_a_small_density(client, estimator):
    here, there = clone(estimator).fit(X), clone(estimator).fit(da.from_array(X, chunks=(100, 3)))
    np.testing.assert_array_equal(there.score_samples(), here.score_samples())


# -- what needs no cluster --------------------------------------------------------------------------------------------


def test_keep_metric_drops_the_rows(tmp_path):
    model = LCA(reg=0.0, engine=Engine(keep="metric")).fit(X)
    np.testing.assert_array_equal(model.transform(X), LCA(reg=0.0).fit(X).transform(X))
    with pytest.raises(NotFittedError, match=r"keep='metric'.*it has no density"):
        model.score_samples(X)
    io.save(model, tmp_path / "model.vicinal")
    assert io.load(tmp_path / "model.vicinal").engine == Engine(keep="metric")
    with pytest.raises(ValueError, match="keep='metric' is for metrics"):
        ParzenWindows(engine=Engine(keep="metric")).fit(X)


def test_keep_a_sample_of_the_rows():
    model = ParzenWindows(1.0, engine=Engine(keep=100)).fit(X)
    assert model.mixture_.centres.shape == (100, 3)
    assert np.isin(model.mixture_.centres, X).all()
    assert np.abs(model.score_samples(X) - ParzenWindows(1.0).fit(X).score_samples(X)).mean() < 0.5
    with pytest.raises(ValueError, match="keep=5 is for densities with one kernel"):
        ManifoldParzen(1, 10, engine=Engine(keep=5)).fit(X)
    with pytest.raises(ValueError, match="keep must be 'rows', 'metric' or a positive number"):
        Engine(keep="nothing")
