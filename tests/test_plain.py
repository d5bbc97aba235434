"""Test the conversion of values for JSON."""

import json

import numpy as np
import pandas as pd

from vicinal import RCA
from vicinal._plain import plain, rounded


def test_plain_values_are_json_whatever_they_were():
    values = {
        "numbers": [1, 2.5, True, None, np.float32(0.5), np.int64(3), np.bool_(False)],
        "not finite": [np.nan, np.inf, -np.inf, float("nan")],
        "missing": [pd.NaT, pd.NA, None],
        3: np.array([[1.0, np.nan]]),
        "time": pd.Timestamp("2024-02-03"),
        "estimator": RCA(n_components=2),
    }
    assert json.loads(json.dumps(plain(values), allow_nan=False)) == {
        "numbers": [1, 2.5, True, None, 0.5, 3, False],
        "not finite": [None] * 4,
        "missing": [None] * 3,
        "3": [[1.0, None]],
        "time": "2024-02-03 00:00:00",
        "estimator": "RCA(n_components=2)",
    }


def test_rounded_keeps_significant_digits():
    assert rounded(123456.789) == 123460.0
    assert rounded(1.23456789e-9, 3) == 1.23e-9
    assert rounded(np.inf) is None
