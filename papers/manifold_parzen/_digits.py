"""The digits of Tables 2 to 4; in quick mode scikit-learn's small digits stand in for them."""

from collections.abc import Sequence

import numpy as np
from sklearn.datasets import load_digits

from papers.experiment import Setting

STAND_IN = "Quick mode: scikit-learn's small digits stand in; the paper's numbers are for the real set."


def twos(setting: Setting) -> Sequence[np.ndarray]:
    """Return training, validation and test images of a "2", with pixels in [0, 1]."""
    if not setting.full:
        X, y = load_digits(return_X_y=True)
        return np.split(X[y == 2] / 16, [100, 130])
    X, y = setting.load("mnist", subset="train", return_X_y=True)
    test, labels = setting.load("mnist", subset="test", return_X_y=True)
    train, valid = np.split(X[y == 2] / 255, [5400])
    return train, valid, test[labels == 2] / 255


def ten_digits(setting: Setting) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return all ten digits, pixels in [-1, 1]: ``[(train, labels), (validation, labels), (test, labels)]``."""
    if setting.full:
        return [setting.usps_blurred(subset=part, return_X_y=True) for part in ("train", "validation", "test")]
    X, y = load_digits(return_X_y=True)
    cuts = [900, 1200]
    return list(zip(np.split(X / 8 - 1, cuts), np.split(y, cuts), strict=True))
