"""The options of LCA's stochastic solver, as a record."""

from dataclasses import dataclass

from vicinal._checks import check_integer, check_positive
from vicinal._records import Record


@dataclass(frozen=True, eq=False)
class StochasticEM(Record):
    """Options of the stochastic solver of :class:`vicinal.LCA` (sec. 5 of the paper).

    ``LCA(solver="stochastic")`` uses the defaults.

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
