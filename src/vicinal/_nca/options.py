"""The options of the NCA family, as records: the objective and the solvers."""

from dataclasses import dataclass
from typing import Any

from vicinal._checks import check_choice, check_flag, check_integer, check_positive
from vicinal._records import Record

KINDS = ("accuracy", "likelihood", "pairs")
NEURAL_KINDS = (*KINDS, "regression")  # those of NeuralNCA
MATCHES = ("class", "gaussian", "dot")


@dataclass(frozen=True, eq=False)
class Objective(Record):
    r"""The objective of :class:`vicinal.NCA`, :class:`vicinal.PairNCA` and :class:`vicinal.NeuralNCA`.

    ``NCA(objective="likelihood")`` is ``NCA(objective=Objective("likelihood"))``.

    Parameters
    ----------
    kind : {"accuracy", "likelihood", "pairs", "regression"}, default="accuracy"
        The expected accuracy (Eq. 3 of the paper), the likelihood (Eq. 6), the closeness of given pairs (Eq. 8), or the squared error
        of the soft neighbours' mean, which only NeuralNCA has.
        The likelihood punishes confident mistakes, and every row needs another row of its class.
    match : {"class", "gaussian", "dot"}, default="class"
        The form of y and the agreement of two of its rows (sec. 5). For "class", y holds labels. For "gaussian", y is a
        continuous target with one or several outputs, and :math:`m_{ij} = \exp(-|y_i - y_j|^2 / 2 s^2)`. For "dot", y holds
        rows of class probabilities (label noise, several annotators), and :math:`m_{ij} = y_i \cdot y_j`; one-hot rows give
        the same result as labels.
    match_scale : float or array of shape (n_outputs,), optional
        The standard deviation s of ``match="gaussian"``. The default is a quarter of each output's standard deviation
        times the square root of the number of outputs.
    penalty : float, default=0.0
        The weight of the penalty :math:`\mathrm{penalty} \sum_k v_k \|A_{\cdot k}\|^2`, which is subtracted from the
        objective per row; :math:`v_k` is the variance of column k of X. The sum is the squared size of A in standardised
        units, so the effect of the number does not depend on the units. Networks have
        :class:`Adam(weight_decay=...) <vicinal.Adam>` instead.

    Examples
    --------
    >>> from vicinal import NCA, Objective
    >>> NCA(objective=Objective(match="gaussian", penalty=0.01)).get_params()["objective__penalty"]
    0.01
    """

    kind: str = "accuracy"
    match: str = "class"
    match_scale: Any = None
    penalty: float = 0.0

    def __post_init__(self) -> None:
        check_choice(self.kind, "kind", NEURAL_KINDS)
        check_choice(self.match, "match", MATCHES)
        check_positive(self.penalty, "penalty", strict=False)

    @classmethod
    def named(cls, name: str) -> "Objective":
        """Return the objective of a kind."""
        return cls(name)


@dataclass(frozen=True, eq=False)
class StochasticGradient(Record):
    """Options of the stochastic solver of :class:`vicinal.NCA`; ``NCA(solver="stochastic")`` uses the defaults.

    Parameters
    ----------
    batch_size : int, optional
        The number of rows i in a step. The default is chosen so that the pairwise computations outweigh the products
        with X.

    Examples
    --------
    >>> from vicinal import StochasticGradient
    >>> StochasticGradient(batch_size=50)
    StochasticGradient(batch_size=50)
    """

    batch_size: int | None = None

    def __post_init__(self) -> None:
        if self.batch_size is not None:
            check_integer(self.batch_size, "batch_size")


@dataclass(frozen=True, eq=False)
class Adam(Record):
    """Options of the solver of :class:`vicinal.NeuralNCA` and :class:`vicinal.AnchorNCA`.

    ``solver="adam"`` are options of the estimator's own, which both stop early.

    Parameters
    ----------
    batch_size : int, default=512
        The number of rows in a batch, or of pairs for AnchorNCA and for the objective "pairs" of NeuralNCA.
    learning_rate : float, default=0.01
        The size of a step; for AnchorNCA, relative to the root mean square of the entries of the initial matrix.
    weight_decay : float, default=0.0
        This number times half the sum of squares of the weights is subtracted from the objective of AnchorNCA. In each step of
        NeuralNCA, the matrices of the network shrink by this number times the learning rate (AdamW).
    early_stopping : bool, default=False
        Whether to set rows aside, evaluate the objective on them, and return to the epoch in which it was highest.
    validation_fraction : float, default=0.1
        The share of the rows (or pairs) that is set aside.
    n_iter_no_change : int, default=10
        The fit has converged when the objective has not gained ``tol`` for this many epochs (rounds of AnchorNCA).
    n_candidates : int or None, default=1024
        The number of rows that NeuralNCA draws in each step as possible neighbours, besides those of the batch; None takes all rows.
        AnchorNCA has no candidates.

    Examples
    --------
    >>> from vicinal import Adam
    >>> Adam(early_stopping=True).validation_fraction
    0.1
    """

    batch_size: int = 512
    learning_rate: float = 0.01
    weight_decay: float = 0.0
    early_stopping: bool = False
    validation_fraction: float = 0.1
    n_iter_no_change: int = 10
    n_candidates: int | None = 1024

    def __post_init__(self) -> None:
        check_integer(self.batch_size, "batch_size", least=2)
        check_positive(self.learning_rate, "learning_rate")
        check_positive(self.weight_decay, "weight_decay", strict=False)
        check_flag(self.early_stopping, "early_stopping")
        if not 0 < check_positive(self.validation_fraction, "validation_fraction") < 1:
            raise ValueError(f"validation_fraction must be between 0 and 1, got {self.validation_fraction!r}.")
        check_integer(self.n_iter_no_change, "n_iter_no_change")
        if self.n_candidates is not None:
            check_integer(self.n_candidates, "n_candidates", least=0)
