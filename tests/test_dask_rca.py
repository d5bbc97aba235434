"""Test RCA on Dask collections: the checks of tables in memory, and fits in parts."""

import numpy as np
import pandas as pd
import pytest
from needs import needs

da, dd = needs("dask.array", "dask.dataframe")

from dask_workers import clustered  # noqa: E402

from vicinal import RCA  # noqa: E402

X, Y = clustered(240, 3)
FRAME = pd.DataFrame(X, columns=["a", "b", "c"])
SMALL = np.random.default_rng(0).permutation(240) // 2  # chunklets of two rows, in different partitions


@pytest.mark.parametrize("labels", [Y, SMALL])
def test_partitions_are_checked_like_tables_in_memory(labels):
    """Complex numbers were accepted, and texts and missing integers gave errors of NumPy that named no column."""
    with pytest.raises(ValueError, match=r"partition \d of X: Complex data not supported"):
        RCA().fit(da.from_array(X + 1j, chunks=(50, 3)), labels)
    texts = FRAME.assign(t=["three"] * 240)
    with pytest.raises(ValueError, match=r"partition \d of X: X must hold numbers.*Columns without numbers: t\. Drop"):
        RCA().fit(dd.from_pandas(texts, npartitions=3), labels)
    gaps = FRAME.assign(b=pd.array([*range(239), None], dtype="Int64"))
    with pytest.raises(ValueError, match=r"partition 2 of X: Input X contains NaN.*vicinal\.DensityImputer"):
        RCA().fit(dd.from_pandas(gaps, npartitions=3), labels)
    integers = FRAME.assign(b=pd.array(range(240), dtype="Int64"))
    there, here = RCA().fit(dd.from_pandas(integers, npartitions=3), labels), RCA().fit(integers, labels)
    np.testing.assert_allclose(there.components_, here.components_, rtol=1e-9, atol=1e-12)


def test_a_fit_in_parts_takes_collections():
    rows, labels = da.from_array(X, chunks=(50, 3)), da.from_array(Y, chunks=50)
    there = RCA().partial_fit(rows[:100], labels[:100]).partial_fit(rows[100:], Y[100:]).partial_fit(X, labels)
    here = RCA().partial_fit(X[:100], Y[:100]).partial_fit(X[100:], Y[100:]).partial_fit(X, Y)
    np.testing.assert_allclose(there.components_, here.components_, rtol=1e-9, atol=1e-12)
    assert there._sums.n_rows == here._sums.n_rows == 480
    with pytest.raises(ValueError, match=r"X has 240 rows and y has 100"):
        RCA().partial_fit(rows, labels[:100])
    with pytest.raises(ValueError, match=r"2 features, but RCA is expecting 3"):
        there.partial_fit(rows[:, :2], labels)
