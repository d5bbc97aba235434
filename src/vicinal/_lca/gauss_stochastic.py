"""LCA-Gauss with minibatches: sec. 5 of the paper, applied to the model of sec. 4.

The local covariance :math:`C_L`, in coordinates in which the Gaussian's covariance is the identity, is blended by Eq. 7 as in LCA;
after each minibatch, Proposition 1 determines the directions.
"""

from typing import NamedTuple

import numpy as np

from vicinal._fit_loops import FitPath, Recorder
from vicinal._kernel_penalty import Penalty
from vicinal._lca.gauss_steps import (
    ROUGH,
    GaussProblem,
    Split,
    em_step,
    gaussian_part,
    kernel_covariance,
    local_metric,
    relaxed_em,
    search_directions,
    split_at_one,
)
from vicinal._lca.stochastic import SAMPLE, START_PASSES, START_TOL, sampled_neighbors
from vicinal._leave_one_out import LeaveOneOut, some_rows

# Passes of a fit to a sample. Directions that are nearly Gaussian make EM slow, and sweeps would be slower.
_SAMPLE_PASSES = 200


class Splits(NamedTuple):
    """The directions of LCA-Gauss as what is learned by sweeps; see `Sweepable`."""

    problem: GaussProblem
    reduce: bool = False  # whether the fit to a sample searches for the number of local directions

    @property
    def _reg(self) -> Penalty:
        return self.problem.reg.in_frame(self.problem.root)

    def at(self, local: np.ndarray) -> Split:
        """Return the directions of a local covariance."""
        matrix = self._reg.updated(local)
        return split_at_one(0.5 * (matrix + matrix.T))

    def local_of(self, parameters: Split) -> np.ndarray:
        """Return a local covariance with these directions.

        Along a Gaussian direction, on which the choice of neighbours does not depend, the scatter of neighbours is twice the
        covariance.
        """
        twice = parameters.gaussian @ parameters.gaussian.T
        return self._reg.local_part(kernel_covariance(parameters) + twice)

    def sampled(self, parameters: Split, queries: np.ndarray, points: np.ndarray | None) -> tuple[float, np.ndarray]:
        """Return the objective and the local covariance of some rows.

        The Gaussian's term is that of all rows, which is known without a pass.
        """
        if len(parameters.variances) == 0:  # see departure 6: all directions stay Gaussian
            return gaussian_part(self.problem, parameters), self.local_of(parameters)
        fit, local = sampled_neighbors(self.problem, local_metric(parameters), queries, points)
        return fit + gaussian_part(self.problem, parameters), local

    def fit_sample(self, start: Split, size: int, rng: np.random.Generator) -> FitPath:
        """Return the exact fit to a sample of rows, of at least 3000 if there are so many."""
        # Departure 8 (LCAGauss): Stochastic fits start from a sample, on which LCA-Gauss-Red searches. Sweeps are measured on too few
        # rows to compare numbers of directions by them.
        n = len(self.problem.weight)
        positions = np.sort(rng.choice(n, min(max(size, SAMPLE), n), replace=False))
        some = some_rows(LeaveOneOut(*self.problem[:4]), positions)
        sample = GaussProblem(*some[:4], self.problem.reg, self.problem.root)

        def run(split: Split, tol: float) -> FitPath:
            return relaxed_em(lambda at: em_step(sample, at), split, Recorder(), max_iter=_SAMPLE_PASSES, tol=tol)

        path = run(start, ROUGH)
        if self.reduce and not path.reason.by_user:
            path = search_directions(run, path, ROUGH, sample.weight.sum())
        return path

    def fit_terms(self, start: Split, terms: np.ndarray, points: np.ndarray | None) -> FitPath:
        """Return the fit to some terms among some rows."""

        def step(split: Split) -> tuple[float, Split]:
            objective, local = self.sampled(split, terms, points)
            return objective, self.at(local)

        return relaxed_em(step, start, Recorder(), max_iter=START_PASSES, tol=START_TOL)
