"""The three problems of Fig. 2, whitened, with columns of white noise appended (sec. 6.1)."""

import numpy as np

from vicinal.datasets import add_noise_dimensions, make_five_gaussians, make_two_circles, make_two_gaussians

PROBLEMS = {
    "two Gaussians": make_two_gaussians,
    "two circles": make_two_circles,
    "five Gaussians": make_five_gaussians,
}


def noisy(problem: str, n: int, noise: int, run: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and their clusters: the plane of the problem first, then the columns of noise."""
    X, y = PROBLEMS[problem](n, random_state=run)
    return add_noise_dimensions(X, noise, random_state=run), y
