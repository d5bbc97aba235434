"""Test rows in files: results equal those of arrays in memory, and memory does not grow with the file."""

import tracemalloc

import numpy as np
import pytest
from needs import needs
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import vicinal._row_sources as row_sources
from vicinal import (
    LCA,
    NCA,
    RCA,
    DensityOutlierDetector,
    Engine,
    ParzenWindows,
    StochasticEM,
    StochasticGradient,
    retrieval,
)
from vicinal._engine import StreamedPlacement, streamed
from vicinal._row_sources import ArrayRows, ColumnsOf, as_source, in_file
from vicinal.io import load, open_rows, save

SMALL = Engine(memory="1 MB")  # of which five copies of some thousand rows fit
pytestmark = pytest.mark.usefixtures("short_search_in_this_file")


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(row_sources, "BLOCK_BYTES", 2**14)


def clusters(n, d=3, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(3, size=n)
    return rng.normal(size=(n, d)) * np.linspace(0.1, 1.0, d) + 4.0 * labels[:, None], labels


def as_map(X, folder, name="rows.npy"):
    np.save(folder / name, X)
    return np.load(folder / name, mmap_mode="r")


def as_parquet(X, folder, files=3):
    pa = needs("pyarrow")
    from pyarrow import parquet

    folder.mkdir(exist_ok=True)
    names = [f"c{k}" for k in range(X.shape[1])]
    for place, part in enumerate(np.array_split(X, files)):
        table = pa.table({name: part[:, k] for k, name in enumerate(names)})
        parquet.write_table(table, folder / f"part-{place}.parquet", row_group_size=100)
    return folder


def as_zarr(X, folder):
    zarr = needs("zarr")
    array = zarr.create_array(str(folder), shape=X.shape, chunks=(70, X.shape[1]), dtype=X.dtype)
    array[:] = X
    return folder


FORMATS = {
    "npy": lambda X, folder: open_rows(as_map(X, folder).filename),
    "parquet": lambda X, folder: open_rows(as_parquet(X, folder / "parts")),
    "zarr": lambda X, folder: open_rows(as_zarr(X, folder / "rows.zarr")),
}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_every_format_gives_the_rows_of_the_array(form, dtype, tmp_path, small_blocks):
    X = clusters(1003)[0].astype(dtype)
    source = FORMATS[form](X, tmp_path)
    assert source.shape == X.shape
    assert source.dtype == dtype
    blocks = [block.copy() for block in source.blocks()]
    assert all(len(block) for block in blocks)
    np.testing.assert_array_equal(np.concatenate(blocks), X)
    positions = np.array([5, 1002, 5, 0])
    np.testing.assert_array_equal(source.take(positions), X[positions])
    np.testing.assert_array_equal(ColumnsOf(source, np.array([2, 0])).take(positions), X[positions][:, [2, 0]])
    assert in_file(source.kept())
    np.testing.assert_array_equal(source.kept(), X)


def test_integers_and_booleans_become_float64(tmp_path):
    pa = needs("pyarrow")
    from pyarrow import parquet

    table = pa.table({"a": [1, 2, None], "b": [True, False, None], "t": ["x", "y", "z"]})
    parquet.write_table(table, tmp_path / "t.parquet")
    source = open_rows(tmp_path / "t.parquet", columns=["b", "a"])
    assert source.columns == ["b", "a"]
    np.testing.assert_array_equal(np.concatenate(list(source.blocks())), [[1, 1], [0, 2], [np.nan, np.nan]])
    with pytest.raises(ValueError, match=r"columns of numbers in the table, got t.*columns="):
        open_rows(tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=r"no column 'c' in the table, which has a, b, t"):
        open_rows(tmp_path / "t.parquet", columns=["c"])


def test_what_is_no_table_in_a_file_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no file or folder"):
        open_rows(tmp_path / "absent.npy")
    np.save(tmp_path / "cube.npy", np.zeros((2, 2, 2)))
    with pytest.raises(ValueError, match=r"shape \(2, 2, 2\); expected a table"):
        open_rows(tmp_path / "cube.npy")
    (tmp_path / "rows.xlsx").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="can be read in blocks"):
        open_rows(tmp_path / "rows.xlsx")
    (tmp_path / "rows.csv").write_text("a,b\n1,x\n")
    with pytest.raises(ValueError, match=r"expected columns of numbers in .*rows.csv, got b"):
        open_rows(tmp_path / "rows.csv")
    np.save(tmp_path / "rows.npy", np.zeros((2, 2)))
    with pytest.raises(ValueError, match="Leave columns out"):
        open_rows(tmp_path / "rows.npy", columns=["a"])


def test_a_damaged_file_is_named(tmp_path):
    """Damaged files reached the user as EOFError, TokenError, RuntimeError of a codec, OSError and AttributeError."""
    as_map(clusters(300)[0], tmp_path)
    whole = (tmp_path / "rows.npy").read_bytes()
    bad = tmp_path / "bad.npy"
    for content in (b"", whole[:-1], whole[:10] + b"\x6e" + whole[11:]):
        bad.write_bytes(content)
        with pytest.raises(ValueError, match=r"cannot read .*bad.npy as NPY: "):
            open_rows(bad)

    folder = as_zarr(clusters(300)[0], tmp_path / "rows.zarr")
    chunk = folder / "c" / "1" / "0"
    chunk.write_bytes(chunk.read_bytes()[:20])
    with pytest.raises(ValueError, match=r"cannot read rows 0 to 299 of .*rows.zarr; it may be damaged"):
        ParzenWindows(1.0).fit(clusters(20)[0]).score_samples(open_rows(folder))
    (folder / "zarr.json").write_text("[]")
    with pytest.raises(ValueError, match=r"cannot read .*rows.zarr; it may be damaged"):
        open_rows(folder)

    part = as_parquet(clusters(300)[0], tmp_path / "parts") / "part-1.parquet"
    content = bytearray(part.read_bytes())
    content[4:200] = bytes(196)  # the first pages; the footer is intact
    part.write_bytes(content)
    with pytest.raises(ValueError, match=r"cannot read .*part-1.parquet; it may be damaged"):
        ParzenWindows(1.0).fit(clusters(20)[0]).score_samples(open_rows(part.parent))


def test_a_zarr_array_that_is_not_complete_warns(tmp_path):
    """Zarr reads chunks that are missing as zeros."""
    folder = as_zarr(clusters(300)[0], tmp_path / "rows.zarr")
    assert open_rows(folder).shape == (300, 3)
    (folder / "c" / "1" / "0").unlink()
    with pytest.warns(UserWarning, match=r"stores only 4 of its 5 chunks; Zarr reads the others as 0"):
        open_rows(folder)


def test_a_zarr_group_names_its_arrays(tmp_path):
    """It was reported as damaged."""
    zarr, X = needs("zarr"), clusters(300)[0]
    for version in (2, 3):
        folder = tmp_path / f"group{version}.zarr"
        group = zarr.open_group(str(folder), mode="w", zarr_format=version)
        with pytest.raises(ValueError, match=r"is a Zarr group, and a table is one array\. It has no array"):
            open_rows(folder)
        for name in ("rows", "others"):
            group.create_array(name, shape=X.shape, dtype=X.dtype, chunks=(100, 3))[:] = X
        with pytest.raises(ValueError, match=r"\(others, rows\), as in open_rows\('.*group..zarr.others'\)"):
            open_rows(folder)
        np.testing.assert_array_equal(np.concatenate(list(open_rows(folder / "rows").blocks())), X)


@pytest.mark.parametrize("form", FORMATS)
def test_other_functions_read_all_rows_into_memory(form, tmp_path, small_blocks):
    """retrieval.search saw a table of shape (), and scikit-learn a scalar."""
    X, y = clusters(303)
    source = FORMATS[form](X, tmp_path)
    np.testing.assert_array_equal(np.asarray(source), X)
    assert np.asarray(source, dtype=np.float32).dtype == np.float32
    for there, here in zip(retrieval.search(source, source, 3), retrieval.search(X, X, 3), strict=True):
        np.testing.assert_array_equal(there, here)
    there, here = (make_pipeline(StandardScaler(), RCA()).fit(rows, y) for rows in (source, X))
    np.testing.assert_array_equal(there[1].components_, here[1].components_)


def test_every_file_of_a_parquet_table_has_the_columns(tmp_path):
    """A column that a later file lacked was a KeyError, and texts such as "1.5" were taken for numbers."""
    pa = needs("pyarrow")
    from pyarrow import parquet

    folder, density = (
        as_parquet(clusters(300, d=2)[0], tmp_path / "parts"),
        ParzenWindows(1.0).fit(clusters(20, d=2)[0]),
    )
    parquet.write_table(pa.table({"c1": [1.0, 2.0], "c0": [3.0, 4.0]}), folder / "part-3.parquet")  # another order
    assert density.score_samples(open_rows(folder))[-1] == density.score_samples([[4.0, 2.0]])[0]
    parquet.write_table(pa.table({"c0": [1.0]}), folder / "part-3.parquet")
    with pytest.raises(ValueError, match=r"no column 'c1' in .*part-3.parquet, which has c0"):
        density.score_samples(open_rows(folder))
    parquet.write_table(pa.table({"c0": [1.0], "c1": ["1.5"]}), folder / "part-3.parquet")
    with pytest.raises(ValueError, match=r"expected columns of numbers in .*part-3.parquet, got c1"):
        density.score_samples(open_rows(folder))
    for columns in ("c0", ["c0", "c0"]):
        with pytest.raises(ValueError, match="is not a list of different names"):
            open_rows(folder, columns=columns)


def test_every_file_of_a_parquet_table_counts_for_the_precision(tmp_path):
    """The first file had float32, so that large numbers of the second one became infinite."""
    X = clusters(300)[0]
    folder = as_parquet(X.astype(np.float32), tmp_path / "parts", files=1)
    assert open_rows(folder).dtype == np.float32
    (folder / "part-0.parquet").rename(folder / "part-.parquet")  # comes first
    as_parquet(X * 1e300, folder, files=1)
    source = open_rows(folder)
    assert source.dtype == np.float64
    np.testing.assert_array_equal(np.concatenate(list(source.blocks())), np.vstack([X.astype(np.float32), X * 1e300]))


def test_the_index_of_a_dataframe_is_no_column_of_its_parquet_table(tmp_path):
    """That of a dataframe that Dask had written, "__null_dask_index__", was a feature."""
    _, pd, dd = needs("pyarrow", "pandas", "dask.dataframe")
    X = clusters(300)[0]
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    dd.from_pandas(frame, npartitions=3).to_parquet(tmp_path / "dask")
    frame.set_index(pd.Index(np.arange(300) ** 2, name="id")).to_parquet(tmp_path / "pandas.parquet")
    frame.assign(part=np.arange(300) // 100).to_parquet(tmp_path / "hive", partition_cols=["part"])
    for name in ("dask", "pandas.parquet", "hive"):
        source = open_rows(tmp_path / name)
        assert source.columns == ["a", "b", "c"]
        np.testing.assert_array_equal(np.concatenate(list(source.blocks())), X)
    named = open_rows(tmp_path / "pandas.parquet", columns=["c", "id"])
    np.testing.assert_array_equal(named.take(np.array([7])), [[X[7, 2], 49.0]])

    from pyarrow import dataset

    assert as_source(dataset.dataset(tmp_path / "hive", partitioning="hive")).columns == ["a", "b", "c"]


def test_arrays_in_memory_are_no_sources(tmp_path):
    X = clusters(50)[0]
    assert as_source(X) is None
    assert as_source(X.tolist()) is None
    assert as_source(ArrayRows(X)) is None
    mapped = as_map(X, tmp_path)
    assert as_source(mapped) is not None
    assert in_file(np.asarray(mapped))
    assert not in_file(mapped[[0, 1]])  # a copy


@pytest.mark.parametrize("form", FORMATS)
def test_rca_of_a_file_is_that_of_the_array_to_the_last_bit(form, tmp_path, small_blocks):
    X, y = clusters(1003)
    source = FORMATS[form](X, tmp_path)
    fitted, expected = RCA().fit(source, y), RCA().fit(X, y)
    np.testing.assert_array_equal(fitted.components_, expected.components_)
    np.testing.assert_array_equal(fitted.total_covariance_, expected.total_covariance_)
    if source.columns is not None:
        assert list(fitted.feature_names_in_) == ["c0", "c1", "c2"]
    np.testing.assert_allclose(fitted.transform(source), expected.transform(X), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("form", FORMATS)
def test_scores_of_a_file_are_those_of_the_array(form, tmp_path, small_blocks):
    X = clusters(1003)[0]
    source = FORMATS[form](X, tmp_path)
    density = ParzenWindows(0.3).fit(X[:200])
    np.testing.assert_allclose(density.score_samples(source), density.score_samples(X), rtol=1e-12)
    assert density.score(source) == pytest.approx(density.score(X))


def test_names_of_columns_are_compared(tmp_path):
    X, y = clusters(300)
    source = open_rows(as_parquet(X, tmp_path / "parts"))
    fitted = RCA().fit(source, y)
    with pytest.raises(ValueError, match=r"c2, c1, c0, but RCA was fitted on c0, c1, c2"):
        fitted.transform(open_rows(tmp_path / "parts", columns=["c2", "c1", "c0"]))


# -- LCA ------------------------------------------------------------------------------------------------------------------


def test_lca_of_a_map_that_fits_into_the_memory_is_that_of_the_array(tmp_path):
    X = clusters(400)[0]
    for solver in ("accelerated", StochasticEM(n_candidates=100)):
        fitted, expected = (LCA(solver=solver, reg=0.0, random_state=0).fit(rows) for rows in (as_map(X, tmp_path), X))
        np.testing.assert_array_equal(fitted.covariance_, expected.covariance_)
        assert in_file(fitted.mixture_.centres)
        assert not in_file(expected.mixture_.centres)
        np.testing.assert_array_equal(fitted.score_samples(), expected.score_samples())


@pytest.mark.slow
def test_lca_of_a_large_map_learns_the_kernel_of_its_candidates(tmp_path, small_blocks):
    X = clusters(20_000)[0]
    fitted = LCA(solver="stochastic", engine=SMALL, random_state=0).fit(as_map(X, tmp_path))
    assert fitted.solver_ == "stochastic"
    assert fitted.converged_
    assert fitted.mixture_.centres.shape == X.shape
    assert in_file(fitted.mixture_.centres)
    # A density of as many rows as there are candidates is as good under this kernel as under the one of an exact fit to it.
    some = X[: 2**20 // (5 * 3 * 8)]
    best = LCA(solver="accelerated").fit(some).score()
    assert best - 0.01 < ParzenWindows(fitted.covariance_).fit(some).score() < best
    # All rows are components beside the broad Gaussians, and are scored from the file.
    kernels = ParzenWindows(fitted.covariance_).fit(X).score_samples(X[:50])
    background = fitted.mixture_.background
    expected = background.beside(kernels, background.log_densities(X[:50], fitted.covariance_))
    np.testing.assert_allclose(fitted.score_samples(X[:50]), expected, rtol=1e-9)


def test_lca_of_a_large_file_leaves_out_what_does_not_count(tmp_path, small_blocks):
    X = np.column_stack([clusters(30_000, d=2)[0], np.full(30_000, 7.0)])
    weight = np.ones(len(X))
    X[::3], weight[::3] = 1e6, 0.0
    X[:, 2] = 7.0
    with pytest.warns(UserWarning, match="1 of 3 columns is constant"):
        fitted = LCA(solver="stochastic", engine=SMALL, random_state=0).fit(as_map(X, tmp_path), sample_weight=weight)
    assert fitted.covariance_.shape == (2, 2)
    assert fitted.covariance_.max() < 1.0
    assert fitted.mixture_.centres.shape == (30_000, 2)
    assert np.isfinite(fitted.score_samples(X[1:2])).all()


def test_gaps_and_infinities_in_a_large_file_are_refused(tmp_path, small_blocks):
    X = clusters(30_000)[0]
    X[29_000, 1] = np.nan
    with pytest.raises(ValueError, match=r"contains NaN in the columns 1"):
        LCA(solver="stochastic", engine=SMALL).fit(as_map(X, tmp_path))
    X[29_000, 1] = np.inf
    with pytest.raises(ValueError, match=r"contains infinity.*in the columns 1"):
        LCA(solver="stochastic", engine=SMALL).fit(as_map(X, tmp_path, "other.npy"))


def test_a_density_in_a_large_file_says_what_it_cannot_do(tmp_path):
    X = clusters(20_000)[0]
    density = ParzenWindows(0.3, engine=SMALL).fit(as_map(X, tmp_path))
    near = ParzenWindows(0.3).fit(X)
    np.testing.assert_allclose(density.score_samples(X[:20]), near.score_samples(X[:20]), rtol=1e-12)
    with pytest.raises(ValueError, match=r"20,000 components .* in a file.*gather\(\)"):
        density.mixture_.mean_shift(X[:2])


def test_density_in_a_file_cannot_be_saved_and_the_error_names_remedies(tmp_path):
    rows = as_map(clusters(300)[0], tmp_path)
    for density in (LCA(reg=0.0), ParzenWindows(0.3), DensityOutlierDetector(LCA(reg=0.0))):
        with pytest.raises(
            TypeError, match=r"never holds a reference\. Call gather\(\) on the density.*training_rows=False"
        ):
            save(density.fit(rows), tmp_path / "model")


def test_leave_one_out_in_a_large_file(tmp_path):
    X, some = clusters(9_000, d=5)[0], np.arange(0, 9_000, 900)
    there, here = (
        ParzenWindows(0.3, engine=SMALL).fit(rows).mixture_.placement(10) for rows in (as_map(X, tmp_path), X)
    )
    assert isinstance(there, StreamedPlacement)
    np.testing.assert_allclose(there.log_sums(some), here.log_sums(some), rtol=1e-12)
    np.testing.assert_allclose(there.log_sums(X[some], some), here.log_sums(some), rtol=1e-12)


def test_leave_one_out_of_all_rows_in_a_large_file_prepares_each_block_once(tmp_path, monkeypatch):
    """Each block was read and prepared once per block of queries."""
    X, calls = clusters(9_000, d=5)[0], []
    there, here = (
        ParzenWindows(0.3, engine=SMALL).fit(rows).mixture_.placement(10) for rows in (as_map(X, tmp_path), X)
    )
    prepare = streamed.prepare
    monkeypatch.setattr(streamed, "prepare", lambda *args, **options: calls.append(1) or prepare(*args, **options))
    np.testing.assert_allclose(there.log_sums(), here.log_sums(np.arange(9_000)), atol=1e-11)
    assert len(calls) == len(there._blocks) > 1
    assert not hasattr(there, "scatter")


# -- NCA ------------------------------------------------------------------------------------------------------------------


def test_nca_of_a_large_map_finds_the_direction_of_the_classes(tmp_path, small_blocks):
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=30_000)
    X = rng.normal(size=(30_000, 3)) * [1.0, 10.0, 10.0]
    X[:, 0] += 6.0 * y
    solver = StochasticGradient(batch_size=64)
    nca = NCA(1, solver=solver, engine=SMALL, max_iter=3, random_state=0)
    with pytest.warns(UserWarning, match="max_iter"):
        nca.fit(as_map(X, tmp_path), np.array(["a", "b", "c"])[y])
    direction = np.abs(nca.components_[0])
    assert direction[0] > 10 * direction[1:].max()
    assert nca.objectives_[-1] > 0.95
    assert nca.evaluation_rows_.max() > 20_000  # positions in the file
    assert len(nca.effective_neighbors_) == len(nca.evaluation_rows_)


def test_nca_of_a_map_that_fits_into_the_memory_is_that_of_the_array(tmp_path):
    X, y = clusters(300)
    fitted, expected = (NCA(2, random_state=0, max_iter=20, tol=1e-2).fit(rows, y) for rows in (as_map(X, tmp_path), X))
    np.testing.assert_array_equal(fitted.components_, expected.components_)


def test_nca_refuses_classes_too_small_to_be_drawn_twice(tmp_path, small_blocks):
    X = clusters(30_000)[0]
    with pytest.raises(ValueError, match=r"no two of 8,738 rows.*Merge small classes"):
        NCA(solver="stochastic", engine=SMALL, random_state=1).fit(as_map(X, tmp_path), np.arange(30_000))


# -- memory ---------------------------------------------------------------------------------------------------------------


def peak_of(call):
    """The most memory that Python and NumPy held at once during a call, in bytes, beyond what they held before."""
    call()  # what is imported or compiled once
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        call()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


@pytest.fixture
def large_map(tmp_path, small_blocks):
    X, y = clusters(20_000, d=40)
    return as_map(X, tmp_path), y  # 6.4 MB


@pytest.mark.filterwarnings("ignore:.*max_iter")
def test_memory_of_fits_does_not_grow_with_the_file(tmp_path, small_blocks):
    """Labels and weights are vectors in memory: a quarter of these rows at most.  Sweeps have buffers of a fixed size."""
    lca = LCA("diag", engine=SMALL, random_state=0, max_iter=1, init=0.1, solver=StochasticEM(batch_size=500))
    nca = NCA(1, engine=SMALL, random_state=0, max_iter=1, init=np.eye(1, 40), solver=StochasticGradient(batch_size=16))
    (tmp_path / "small").mkdir()
    X, y = clusters(60_000, d=40)
    small, large = as_map(X[:20_000], tmp_path / "small"), as_map(X, tmp_path)  # 6.4 and 19.2 MB
    for fit in (
        lambda rows: lca.fit(rows),
        lambda rows: nca.fit(rows, y[: len(rows)]),
        lambda rows: RCA().fit(rows, y[: len(rows)]),
    ):
        fit(small)  # what is imported and compiled once does not count
        growth = peak_of(lambda fit=fit: fit(large)) - peak_of(lambda fit=fit: fit(small))
        assert growth < 0.25 * (large.nbytes - small.nbytes)


@pytest.mark.slow
def test_labels_take_less_memory_than_ten_columns():
    """Sorting the labels of a memory map once took as much memory as its rows."""
    from vicinal._supervision import read_chunklets

    n = 200_000
    y = np.random.default_rng(0).integers(20, size=n)
    assert peak_of(lambda: read_chunklets(y, n)) < 50 * n


def test_memory_of_scores_does_not_grow_with_the_file(large_map):
    X, _ = large_map
    density = ParzenWindows(0.3, engine=SMALL).fit(np.array(X[:100]))
    assert peak_of(lambda: density.score_samples(X)) < 0.4 * X.nbytes
    stored = ParzenWindows(0.3, engine=SMALL)
    assert peak_of(lambda: stored.fit(X)) < 0.2 * X.nbytes
    queries = np.array(X[:10])
    assert peak_of(lambda: stored.score_samples(queries)) < 0.4 * X.nbytes


def test_a_fit_keeps_no_second_copy_of_rows_that_it_has_made_itself():
    pd = needs("pandas")
    X = clusters(20_000, d=20)[0]
    frame = pd.DataFrame(X[:, ::-1].copy(order="F")[:, ::-1])
    density = ParzenWindows(0.3)
    # The table as an array, and no more.
    assert peak_of(lambda: density.fit(frame)) < 1.5 * X.nbytes
    fitted = density.fit(X)
    X[:] = 0.0
    assert fitted.mixture_.centres.any()  # the user's own array is copied


# -- where a density lives ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", [None, SMALL])
def test_a_density_in_a_file_is_brought_home_before_it_is_saved(engine, tmp_path):
    X = clusters(9_000)[0]
    density = ParzenWindows(0.3, engine=engine).fit(as_map(X, tmp_path))
    expected = density.score_samples(X[:20])
    with pytest.raises(TypeError, match=r"in a file of rows.*gather\(\)"):
        save(density, tmp_path / "m.vicinal")
    assert not (tmp_path / "m.vicinal").exists()
    assert density.gather() is density
    assert not in_file(density.mixture_.centres)
    save(density, tmp_path / "m.vicinal")
    np.testing.assert_allclose(load(tmp_path / "m.vicinal").score_samples(X[:20]), expected, rtol=1e-12)
    assert np.isfinite(density.mixture_.mean_shift(X[:2])).all()


def test_a_metric_of_a_file_is_saved_without_its_rows(tmp_path):
    mapped = as_map(clusters(300)[0], tmp_path)
    lca = LCA(reg=0.0).fit(mapped)
    save(lca, tmp_path / "m.vicinal", training_rows=False)
    np.testing.assert_array_equal(load(tmp_path / "m.vicinal").components_, lca.components_)
