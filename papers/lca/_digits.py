"""The digits of Figs. 4 and 5: USPS as the paper prepared it; in quick mode scikit-learn's small digits in its place."""

import numpy as np
from sklearn.datasets import load_digits

from papers.experiment import Setting
from papers.real_sets import blur_images

STAND_IN = "Quick mode: scikit-learn's small digits, blurred likewise, stand in for USPS."


def split_digits(setting: Setting, run: int, *sizes: int) -> list[np.ndarray]:
    """Return rows for each of the sizes, drawn without repetition; the run is the seed."""
    pool = setting.usps_blurred().data if setting.full else blur_images(load_digits().data / 8 - 1, (8, 8))
    pool = pool[np.random.RandomState(run).permutation(len(pool))]
    return np.split(pool, np.cumsum(sizes))[: len(sizes)]
