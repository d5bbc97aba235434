"""Test that methods for rows with gaps, and for images, return lazy Dask collections."""

import numpy as np
import pandas as pd
import pytest
from needs import needs

da, dd = needs("dask.array", "dask.dataframe")

from dask_workers import clustered  # noqa: E402

from vicinal import RCA, DensityImputer, ParzenWindows  # noqa: E402

X, Y = clustered(240, 3)
GAPS = X.copy()
GAPS[::7, 1] = np.nan
FRAME = pd.DataFrame(GAPS, columns=["a", "b", "c"])


def test_images_are_mapped_back_lazily():
    rows, model = da.from_array(X, chunks=(50, 3)), RCA(2).fit(X, Y)
    back = model.inverse_transform(model.transform(rows))
    assert isinstance(back, da.Array)
    assert back.shape == (240, 3)
    np.testing.assert_allclose(back.compute(), model.inverse_transform(model.transform(X)), rtol=1e-12)
    with pytest.raises(ValueError, match="3 columns, but RCA has 2 components"):
        model.inverse_transform(rows)


def test_gaps_are_filled_lazily():
    asked = dd.from_pandas(FRAME, npartitions=3)
    imputer = DensityImputer().fit(FRAME)
    filled = imputer.transform(asked)
    assert isinstance(filled, da.Array)
    assert filled.dtype == np.float64
    np.testing.assert_allclose(filled.compute(), imputer.transform(FRAME), rtol=1e-12)
    drawn = DensityImputer(sample=True, random_state=0).fit(FRAME)
    np.testing.assert_array_equal(drawn.transform(asked), drawn.transform(FRAME))  # in memory


def test_rows_with_gaps_are_scored_lazily(client):
    asked, here = da.from_array(GAPS, chunks=(100, 3)), ParzenWindows(1.0).fit(X)
    expected = here.score_samples(GAPS)
    for model in (here, ParzenWindows(1.0).fit(da.from_array(X, chunks=(100, 3)))):
        lazy = model.score_samples(asked)
        assert isinstance(lazy, da.Array)
        np.testing.assert_allclose(lazy.compute(), expected, rtol=1e-12)
        np.testing.assert_allclose(model.score_samples(GAPS), expected, rtol=1e-12)
