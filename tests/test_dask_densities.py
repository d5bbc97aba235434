"""Test densities that are fitted to Dask collections: they hold their rows in this process, all of them or a sample."""

import warnings

import numpy as np
import pandas as pd
import pytest
from needs import needs
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

dask, distributed, da, dd = needs("dask", "distributed", "dask.array", "dask.dataframe")

from dask_workers import clustered  # noqa: E402

from vicinal import LCA, DensityClassifier, DensityOutlierDetector, Engine, LCAGauss, ParzenWindows, io  # noqa: E402
from vicinal._rows import dask as rows_module  # noqa: E402
from vicinal._rows.dask import DaskRows  # noqa: E402

X = clustered(240, 3)[0]
FRAME = pd.DataFrame(X, columns=["a", "b", "c"])
MANY = clustered(9000, 4)[0]  # more than the working memory of `SMALL` takes
NEW = MANY[::30] + 0.3
SMALL = Engine(memory="1 MB")
WEIGHT = np.random.default_rng(1).random(len(MANY)) * (np.arange(len(MANY)) >= 3000)


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


def test_dask_rows_of_a_dataframe_give_blocks_and_rows_by_position(client):
    source = DaskRows(dd.from_pandas(FRAME, npartitions=3))
    assert (source.shape, source.dtype, source.columns) == ((240, 3), np.dtype(np.float64), ["a", "b", "c"])
    np.testing.assert_array_equal(np.concatenate(list(source.blocks(start=90))), X[90:])
    positions = np.array([239, 3, 3, 100])
    np.testing.assert_array_equal(source.take(positions), X[positions])
    np.testing.assert_array_equal(source.density_positions(), np.arange(240))


@pytest.mark.parametrize("bandwidth", [1.0, "scott"])
def test_parzen_windows_of_a_collection_are_those_of_the_array(client, bandwidth):
    expected = ParzenWindows(bandwidth).fit(MANY, sample_weight=WEIGHT)
    density = ParzenWindows(bandwidth).fit(in_chunks(MANY), sample_weight=in_chunks(WEIGHT))
    np.testing.assert_array_equal(density.mixture_.centres, MANY)
    np.testing.assert_array_equal(density.covariance_, expected.covariance_)
    np.testing.assert_array_equal(density.score_samples(NEW), expected.score_samples(NEW))
    lazy = density.score_samples(in_chunks(NEW, 50))
    assert isinstance(lazy, da.Array)
    np.testing.assert_array_equal(lazy.compute(), expected.score_samples(NEW))


@pytest.mark.parametrize("weight", [None, WEIGHT])
@pytest.mark.parametrize("method", [LCA, LCAGauss])
def test_stochastic_fit_to_a_collection_draws_what_a_fit_to_a_file_draws(client, tmp_path, method, weight):
    expected = quietly(stochastic(method), mapped(MANY, tmp_path), sample_weight=weight)
    model = quietly(stochastic(method), in_chunks(MANY), sample_weight=None if weight is None else in_chunks(weight))
    np.testing.assert_allclose(model.components_, expected.components_, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(model.score_samples(NEW), expected.score_samples(NEW), rtol=1e-9)
    assert isinstance(model.mixture_.centres, np.ndarray)
    io.save(model, tmp_path / "model.vicinal")  # its rows are in memory


def test_stochastic_fit_without_a_client_leaves_constant_columns_out():
    rows = np.column_stack([MANY, np.full(len(MANY), 3.0)])
    with pytest.warns(UserWarning, match="constant"):
        model = quietly(stochastic(LCA), in_chunks(rows))
    np.testing.assert_array_equal(model.mixture_.centres, MANY)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("method", [LCA, LCAGauss, ParzenWindows])
def test_density_of_a_collection_that_does_not_fit_is_a_sample_with_a_warning(monkeypatch, method, weighted):
    monkeypatch.setattr(rows_module, "MOST_DENSITY_BYTES", 2000 * MANY[0].nbytes)
    estimator = ParzenWindows("scott") if method is ParzenWindows else stochastic(method)
    weight = np.arange(1.0, len(MANY) + 1.0)
    options = {"sample_weight": in_chunks(weight)} if weighted else {}
    with pytest.warns(UserWarning, match=r"random sample of 2,000 of the 9,000 rows of this Dask collection"):
        model = quietly(estimator, in_chunks(MANY), **options)
    rows = getattr(model, "rows_", model.mixture_.centres)  # the centres of LCA-Gauss have moved away from its rows
    assert rows.shape == (2000, 4)
    positions = {row.tobytes(): place for place, row in enumerate(MANY)}
    kept = np.array([positions[row.tobytes()] for row in np.ascontiguousarray(rows)])
    expected = weight[kept] / weight[kept].sum() if weighted else np.full(2000, 1 / 2000)
    np.testing.assert_allclose(np.exp(model.mixture_.log_weights), expected, rtol=1e-10)
    assert np.isfinite(model.score_samples(NEW)).all()


def test_dataframe_of_unknown_sizes_is_sampled_like_an_array(monkeypatch):
    monkeypatch.setattr(rows_module, "MOST_DENSITY_BYTES", 100 * X[0].nbytes)
    frame = dd.from_pandas(FRAME, npartitions=4)
    with pytest.warns(UserWarning, match=r"random sample of 100 of the 240 rows"):
        density = ParzenWindows(1.0).fit(frame[frame.a < np.inf])
    assert density.mixture_.centres.shape == (100, 3)
    assert list(density.feature_names_in_) == ["a", "b", "c"]


def test_classifier_of_a_collection_that_does_not_fit_keeps_labels_with_their_rows(monkeypatch):
    rows, labels = clustered(600, 3)
    monkeypatch.setattr(rows_module, "MOST_DENSITY_BYTES", 300 * rows[0].nbytes)
    with pytest.warns(UserWarning, match=r"random sample of 300 of the 600 rows"):
        model = DensityClassifier(ParzenWindows(1.0)).fit(in_chunks(rows, 100), in_chunks(labels, 100))
    assert sum(len(density.mixture_.centres) for density in model.densities_) == 300
    position = {row.tobytes(): label for row, label in zip(rows, labels, strict=True)}
    for label, density in zip(model.classes_, model.densities_, strict=True):
        assert {position[row.tobytes()] for row in density.mixture_.centres} == {label}


def test_outlier_detector_of_a_collection_is_that_of_the_array(client):
    expected = DensityOutlierDetector().fit(X)
    model = DensityOutlierDetector().fit(in_chunks(X, 60))
    np.testing.assert_array_equal(model.training_scores_, expected.training_scores_)
    np.testing.assert_array_equal(model.predict(in_chunks(X + 0.1, 60)).compute(), expected.predict(X + 0.1))


def test_transform_of_a_collection_sends_no_training_rows(client):
    model = LCA(reg=0.1).fit(X)
    lazy = model.transform(in_chunks(X, 60))
    np.testing.assert_array_equal(lazy.compute(), model.transform(X))
    assert model.mixture_.centres.shape == X.shape  # the model here keeps them
