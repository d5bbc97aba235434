"""The records of LCA: the options of its stochastic solver, and a penalty that draws the kernel towards a target."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.typing import ArrayLike

from vicinal._checks import check_integer, check_positive
from vicinal._records import Record


@dataclass(frozen=True, eq=False)
class StochasticEM(Record):
    """Options of the stochastic solver of :class:`vicinal.LCA` and :class:`vicinal.LCAGauss` (sec. 5 of the paper).

    ``LCA(solver="stochastic")`` and ``LCAGauss(solver="stochastic")`` use the defaults.

    Parameters
    ----------
    batch_size : int, default=100
        The number of rows in a minibatch.
    n_candidates : int, optional
        The number of rows that are drawn at each step as possible neighbours (sec. 5.2). The fewer there are, the
        wider the learned kernel is. By default all rows are candidates, and a sweep visits max(2000, 100 d) rows
        instead of all; the cost is still linear in n, without that bias. For ``partial_fit`` this is the size of the
        sample of rows that is kept (3000 by default).
    discount : float, default=0.6
        The weight of the old covariance after a sweep over the rows (gamma of Eq. 7), at least 0 and less than 1.

    Examples
    --------
    >>> from vicinal import LCA, StochasticEM
    >>> LCA(solver=StochasticEM(batch_size=50)).set_params(solver__discount=0.9).solver
    StochasticEM(batch_size=50, n_candidates=None, discount=0.9)
    """

    batch_size: int = 100
    n_candidates: int | None = None
    discount: float = 0.6

    def __post_init__(self) -> None:
        check_integer(self.batch_size, "batch_size")
        if self.n_candidates is not None:
            check_integer(self.n_candidates, "n_candidates", least=2)
        if check_positive(self.discount, "discount", strict=False) >= 1:
            raise ValueError(
                f"discount must be less than 1, got {self.discount:g}: with 1, new rows would have no influence."
            )


@dataclass(frozen=True, eq=False)
class Shrinkage(Record):
    r"""A penalty of :class:`vicinal.LCA` that draws the kernel's covariance towards a target.

    The penalty per row is :math:`\frac w2 [\operatorname{tr}(\Sigma^{-1} T) + \log \det \Sigma]` (an inverse Wishart prior), and
    EM's M-step is :math:`(S/n + w T) / (1 + w)` with the local covariance S/n. A penalty matrix R can only make the kernel
    wider; this one also makes it narrower where the target is narrower. With a large weight the kernel is the target.
    ``LCA(reg=Shrinkage(target, weight))`` uses it, and ``reg="auto"`` tries it.

    Parameters
    ----------
    target : float or array
        The covariance T, in squared units of the data: a number (that variance for all features), a vector of variances, or a
        matrix. It must be positive definite along the columns that vary; constant columns are kept if the target is greater
        than 0 along them.
    weight : float
        The weight w of the target, greater than 0 and at most 1e150. With 1, the target counts as much as the data.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import LCA, Shrinkage
    >>> X = np.random.default_rng(0).normal(size=(40, 3))
    >>> for weight in (0.1, 1.0, 1000.0):
    ...     lca = LCA(reg=Shrinkage(0.2, weight)).fit(X)
    ...     print(weight, np.diag(lca.covariance_).round(2))
    0.1 [0.37 0.25 0.34]
    1.0 [0.24 0.22 0.26]
    1000.0 [0.2 0.2 0.2]
    """

    target: ArrayLike
    weight: float

    def __post_init__(self) -> None:
        if check_positive(self.weight, "weight") > 1e150:
            raise ValueError(f"weight must be at most 1e150, got {self.weight:g}: the penalty would overflow.")
