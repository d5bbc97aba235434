"""The six sets of Figure 1 with their splits, and what stands in for them in quick mode."""

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.model_selection import train_test_split

from papers.experiment import Setting
from papers.real_sets import load

SETS = ("balance", "iris", "wine", "ionosphere", "housing", "digits")
QUICK_SETS = ("balance", "iris", "wine", "breast cancer", "diabetes", "small digits")
STAND_IN = (
    "Stand-ins from scikit-learn: breast cancer for ionosphere, diabetes (thirds of the target) for housing, small digits for "
    "USPS. Balance scale is made by its rule."
)


def rows_of(setting: Setting, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows and classes of a set; stand-ins of scikit-learn where quick mode has no files."""
    if name == "breast cancer":
        return load_breast_cancer(return_X_y=True)
    if name == "small digits":
        return load_digits(return_X_y=True)
    if name == "diabetes":
        X, progress = load_diabetes(return_X_y=True, scaled=False)
        return X, thirds(progress)
    if name == "housing":
        X, price = setting.load("boston_housing", return_X_y=True)
        return X, thirds(price)
    if name in ("balance", "iris", "wine"):
        return load({"balance": "balance_scale"}.get(name, name), setting.data_home, return_X_y=True)
    return setting.load({"digits": "usps"}.get(name, name), return_X_y=True)


def split(
    X: np.ndarray, y: np.ndarray, name: str, run: int
) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Return training and test rows with their classes, 70 to 30; the digits are split as in the paper."""
    sizes = {"test_size": 0.3}
    if name == "digits":  # 200 per class, drawn first; then 500 of the others
        chosen = [np.random.RandomState(run).permutation(np.flatnonzero(y == digit))[:200] for digit in range(10)]
        train = np.concatenate(chosen)
        others = np.setdiff1d(np.arange(len(y)), train)
        test = np.random.RandomState(run).choice(others, 500, replace=False)
        return (X[train], y[train]), (X[test], y[test])
    if name == "small digits":
        sizes = {"train_size": 400, "test_size": 400}
    X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=run, **sizes)
    return (X_train, y_train), (X_test, y_test)


def thirds(values: np.ndarray) -> np.ndarray:
    """Return three classes of equal size: low, middle, high."""
    return np.digitize(values, np.quantile(values, [1 / 3, 2 / 3]))
