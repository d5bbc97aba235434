"""The six UCI sets of Figure 10, and what stands in for them in quick mode."""

import numpy as np
from sklearn.datasets import load_digits

from papers.experiment import Setting
from papers.real_sets import load

SETS = ("wine", "balance", "ionosphere", "soybean", "housing", "iris")
QUICK_SETS = ("wine", "balance", "iris", "small digits")
STAND_IN = (
    "Quick mode has no files: a few of scikit-learn's small digits, of four classes, stand in for soybean, ionosphere and housing are left out. "
    "Balance scale is made by its rule."
)


def rows_of(setting: Setting, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return rows in their own units, and classes; housing has three, by thirds of the price."""
    if name == "housing":
        X, price = setting.load("boston_housing", return_X_y=True)
        return X, np.digitize(price, np.quantile(price, [1 / 3, 2 / 3]))
    if name == "small digits":
        X, y = load_digits(n_class=4, return_X_y=True)
        chosen = np.concatenate([np.flatnonzero(y == digit)[:12] for digit in range(4)])
        return X[chosen], y[chosen]
    if name in ("wine", "balance", "iris"):
        return load({"balance": "balance_scale"}.get(name, name), setting.data_home, return_X_y=True)
    X, y = setting.load({"soybean": "soybean_small"}.get(name, name), return_X_y=True)
    return np.asarray(X, dtype=float), y
