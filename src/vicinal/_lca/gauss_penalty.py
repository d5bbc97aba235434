r"""The two penalties of LCA-Gauss, chosen jointly.

The local penalty is one of those that LCA's own search finds best (one per family that is added, and one that draws towards
a target, where that is its choice), or zero, or so large that every direction is Gaussian. The Gaussian's penalty :math:`R_G` is zero, or leads from the sample covariance to its shrunk estimate
(Ledoit and Wolf): :math:`C_G + R_G` is that estimate. Pairs of them are fitted to the folds of LCA's search, and the
pair with the largest likelihood of held-out rows is selected.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from vicinal._kernel_penalty import Penalty
from vicinal._lca.penalty import FAMILIES, Form, no_penalty, shrinkage, shrunk_covariance
from vicinal._lca.penalty_search import Choice
from vicinal._lca.steps import CollapseError
from vicinal._leave_one_out import scatter_of_rows

# A penalty of the size of the shrunk covariance itself makes every direction Gaussian.
_ALL_GAUSSIAN = Form("shrunk", 1.0)
# With a smaller weight of the diagonal in the shrunk covariance, no density changes by a hundredth of a nat per row.
_HARDLY = 0.01


class LocalRule(NamedTuple):
    """A local penalty as a function of the training rows, with its entry in the table of a search."""

    name: str
    factor: float
    weight: float
    penalty: Callable[[np.ndarray, np.ndarray | None], Penalty]


class GaussianRule(NamedTuple):
    """A penalty of the Gaussian as a function of the training rows, with its entry in the table of a search."""

    name: str
    matrix: Callable[[np.ndarray, np.ndarray | None], np.ndarray]


class Penalties(NamedTuple):
    """A pair of penalties: that of the local covariance, and R_G of the Gaussian."""

    reg: LocalRule
    reg_gauss: GaussianRule

    def local(self, X: np.ndarray, weight: np.ndarray | None) -> Penalty:
        """Return the local penalty for some training rows."""
        return self.reg.penalty(X, weight)

    def gaussian(self, X: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
        """Return R_G for some training rows."""
        return self.reg_gauss.matrix(X, weight)


class GaussFold(Protocol):
    """One split of the rows."""

    def score(self, penalty: Penalties) -> float:
        """Return the mean log-density of the held-out rows after a fit to the training rows."""
        ...


def given_local(reg: Penalty) -> LocalRule:
    """Return a local penalty that the user passed."""
    return LocalRule("given", 1.0, reg.weight or 0.0, lambda X, weight: reg)


def given_gaussian(reg_gauss: np.ndarray) -> GaussianRule:
    """Return a penalty of the Gaussian that the user passed."""
    return GaussianRule("given", lambda X, weight: reg_gauss)


def local_rule(form: Form) -> LocalRule:
    """Return a penalty of one of the families of LCA's search."""
    return LocalRule(form.family, form.factor, form.weight or 0.0, form.of_rows)


def local_rules(choice: Choice | None, answerable: bool) -> list[LocalRule]:
    """Return the local penalties worth trying after LCA's own search: the best of each family, none, and all Gaussian.

    LCA needs a penalty along every direction; if only a few are local, these may need none.
    """
    if choice is None:
        return [local_rule(_ALL_GAUSSIAN)]
    found = {family: choice.best_added(family) for family in FAMILIES}
    forms = {family: Form(family, factor) for family, factor in found.items() if factor is not None}
    forms["drawn" if choice.form.weight else choice.form.family] = choice.form
    rules = [local_rule(form) for form in forms.values()]
    none = [LocalRule("none", 0.0, 0.0, lambda X, weight: no_penalty(X.shape[1]))] if answerable else []
    return [*rules, *none, local_rule(_ALL_GAUSSIAN)]


def gaussian_rules(X: np.ndarray, weight: np.ndarray | None, answerable: bool) -> list[GaussianRule]:
    """Return the penalties of the Gaussian: none (if the rows span all directions), and the one that leads to the shrunk covariance.

    If the estimate hardly shrinks, both are the same Gaussian, and only the former is tried.
    """
    none, shrunk = GAUSSIAN_RULES["none"], GAUSSIAN_RULES["shrunk"]
    if not answerable:
        return [shrunk]
    return [none] if shrinkage(X, weight) < _HARDLY else [none, shrunk]


def _towards_shrunk(X: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
    """Return the difference between the shrunk estimate and the sample covariance, exactly symmetric."""
    difference = shrunk_covariance(X, weight) - scatter_of_rows(X, weight)
    return 0.5 * (difference + difference.T)


def _none(X: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
    return np.zeros(2 * X.shape[1:])


GAUSSIAN_RULES = {"none": GaussianRule("none", _none), "shrunk": GaussianRule("shrunk", _towards_shrunk)}


def choose_both(
    folds: Sequence[GaussFold], regs: Sequence[LocalRule], gaussians: Sequence[GaussianRule]
) -> tuple[Penalties, dict[str, np.ndarray]]:
    """Return the pair of largest mean held-out score, and the table of the pairs that were tried.

    All local penalties are tried with the first Gaussian, and the best two of them with the others.
    """
    pairs = [Penalties(reg, gaussians[0]) for reg in regs]
    tried = [[_score(fold, pair) for fold in folds] for pair in pairs]
    best = np.argsort(-np.mean(tried, axis=1), kind="stable")[:2]
    further = [Penalties(regs[k], gaussian) for gaussian in gaussians[1:] for k in best]
    pairs += further
    scores = np.array(tried + [[_score(fold, pair) for fold in folds] for pair in further])
    means = scores.mean(axis=1)
    finite = np.isfinite(scores).all(axis=1)
    deviations = np.full(len(pairs), np.inf)
    deviations[finite] = scores[finite].std(axis=1)
    table = {
        "family": np.array([pair.reg.name for pair in pairs]),
        "factor": np.array([pair.reg.factor for pair in pairs]),
        "weight": np.array([pair.reg.weight for pair in pairs]),
        "gaussian": np.array([pair.reg_gauss.name for pair in pairs]),
        "mean_test_score": means,
        "std_test_score": deviations,
    }
    return pairs[int(np.argmax(means))], table


def _score(fold: GaussFold, pair: Penalties) -> float:
    try:
        score = fold.score(pair)
    except (CollapseError, np.linalg.LinAlgError):
        return -np.inf
    return score if np.isfinite(score) else -np.inf
