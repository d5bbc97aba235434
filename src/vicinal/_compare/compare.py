"""A cross-validated comparison that measures whether a learned metric or density helps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from types import SimpleNamespace
from typing import Any

from numpy.random import RandomState
from numpy.typing import ArrayLike

from vicinal._compare.plan import make_plan
from vicinal._compare.results import Comparison
from vicinal._compare.rows import open_table
from vicinal._compare.running import Run
from vicinal._engine import Engine


def compare(
    X: ArrayLike,
    y: ArrayLike | None = None,
    *,
    task: str = "auto",
    types: Mapping[Any, Any] | None = None,
    log: Sequence[str] = (),
    missing: str | None = None,
    metrics: Any = None,
    densities: Any = None,
    n_neighbors: int = 5,
    n_splits: int = 5,
    n_repeats: int | None = None,
    max_rows: int = 20_000,
    fit_rows: int = 4_000,
    fast: bool = False,
    random_state: RandomState | int | None = 0,
    engine: Engine | str | None = None,
    progress: Callable[[int, int, str], Any] | None = None,
    first_results: Callable[[Comparison], Any] | None = None,
    keep: str | PathLike[str] | None = None,
) -> Comparison:
    """Compare metrics and densities by cross-validation.

    Everything that is fitted (scaling, whitening, the metric or density) uses only the training folds. Metrics are
    evaluated by the accuracy of k nearest neighbours, or by R² if the target is a number: held-out rows are the queries,
    and the training rows are searched.
    Densities are evaluated by the mean log-likelihood of held-out rows. Learned methods are compared with the best plain
    method on the same folds, with intervals that hold for all of them simultaneously (`corrected_interval`).

    Parameters
    ----------
    X : array-like of shape (n, n_features)
        The rows. A DataFrame with columns that are not numbers (text, dates) is prepared by :func:`vicinal.tables.prepare`, whose notes
        become those of the comparison.
    y : array-like of shape (n,), or the name of a column of X, optional
        Classes, or numbers to predict. Without it, only densities are compared.
    task : {"auto", "classes", "numbers"}, default="auto"
        The kind of y. "auto" treats numbers with fractions as numbers, and also whole numbers with more than 20 values, with a
        note, unless these occur about equally often (codes of classes); anything else is treated as classes.
    types : dict, optional
        Overrides of the detected kinds of columns, by name (or position), in the notation of
        :func:`vicinal.tables.column_types`. Densities are learned from quantities (continuous columns and lattices) and categories
        (columns of two values included), LCA as a metric from the same, and LCA-Gauss from quantities. Identifiers and columns that number the
        rows are left out; ``types={"code": "lattice"}`` includes one.
    log : list of str
        Columns of a DataFrame, positive and skewed, of which the logarithm is compared, as prices and incomes usually are.
    missing : {"refuse", "impute", "marginalise"}, optional
        The default is "marginalise" if values are missing (NaN). With "impute", missing values (NaN) of training rows and of held-out rows are filled in by a
        :class:`DensityImputer` that is fitted to the training rows of the fold. Densities are evaluated only on complete
        held-out rows, because the others would partly measure the imputer. With "marginalise", metrics are evaluated in the
        same way, and densities learn from rows with missing values and are evaluated on the known values of every held-out
        row; densities that do not support this (Manifold Parzen) are not judged.
    metrics, densities : None, list of str or dict, optional
        The methods to compare: names (see Notes), or a dict of your own unfitted estimators by name, which are compared with
        the plain methods. None compares all methods; an empty list compares none.
    n_neighbors : int, default=5
        The number of neighbours that predict a row.
    n_splits : int, default=5
        The number of folds; fewer if the classes are small.
    n_repeats : int, optional
        The number of repetitions with other folds; the default is 3 up to 1,000 rows, 2 up to 3,000, then 1.
    max_rows : int, default=20_000
        Larger data sets are represented by a stratified random sample of this many rows.
    fit_rows : int, default=4_000
        Methods whose cost grows with the square of the number of rows are fitted to this many rows of the training fold, and
        all densities to the same rows. Neighbours are searched among all rows of the training fold.
    fast : bool, default=False
        Whether to compute a quick first result: at most 5 folds, no repetitions, at most 3,000 rows compared and 500 rows
        fitted. Fewer rows favour methods with few parameters, and fewer folds widen the intervals; the notes say what was
        done.
    random_state : int, RandomState or None, default=0
        The seed of the folds, of samples and of the methods. If it is not an int, a seed is drawn, and ``settings`` holds it.
    engine : None, str or Engine, default=None
        The backend of the pairwise computations; see :class:`vicinal.Engine`. With "dask", the workers of the active client fit
        and score the methods, fold by fold.
    progress : callable, optional
        Called as ``progress(done, total, text)`` before each fit to a fold (on workers, after it) and at the end.
    first_results : callable, optional
        Called as ``first_results(comparison)`` when the methods that take seconds have finished in all folds, with their
        comparison, before the others run.
    keep : path, optional
        A file for finished work, one line per method and fold. A later call with the same rows and settings reuses it and
        completes the rest, with the same result to the last bit.

    Returns
    -------
    Comparison
        If the user interrupts the work (Ctrl-C) after at least two folds of all methods, or after all folds of the methods
        that take seconds, the comparison contains the finished work, and the notes say so.

    Notes
    -----
    Metrics: euclidean, z-scored, pca-whitened, lda (plain); rca, lca, lca-gauss, nca (learned), and neural-nca
    (learned, needs torch), which runs only if it is named. The
    plain metrics are also evaluated on the columns that LCA and LCA-Gauss use, if these are others (such as "z-scored-categories" and
    "z-scored-quantities"), so that the choice of columns never counts as a gain from learning. Densities: gaussian,
    parzen-scott, parzen-loo, independent (plain; the last one is a product of densities of single columns); lca, lca-gauss, manifold-parzen
    (learned). All of them are densities of the same columns: LCA and Parzen windows learn how categories belong to the numbers and to each other,
    the others, and "lca-beside", take them as independent. Log-likelihoods are in the units of the
    data, although the columns are standardised first. Rounded columns get noise of one step while a density is learned
    and scored (:class:`Dequantizer`, 8 draws per held-out row); neighbours are searched among rows without noise.

    A method is "not judged" if some of its fits did not converge or needed an additional penalty, and no density is judged
    if a continuous column repeats its values, because such scores can be made arbitrarily high.

    If the target is a number, partial least squares (pls) replaces lda, the rows of NCA agree to the degree that their
    numbers are close (``Objective(match="gaussian")``), RCA learns from ten groups of equal size
    (:class:`BinnedTargetMetric`), and metrics are evaluated by
    :math:`R^2 = 1 - \\mathrm{MSE} / \\operatorname{Var}(y_\\text{train})` of the mean of k neighbours.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> import vicinal
    >>> X, y = load_wine(return_X_y=True)
    >>> result = vicinal.compare(X, y, metrics=["euclidean", "z-scored", "rca"], densities=[], n_repeats=1)
    >>> print(result.verdict)
    RCA did not clearly help: it has a held-out 5-nearest-neighbour accuracy of 98.3 %, compared with 96.1 % for ...
    """
    arguments = {**locals()}
    unplanned = ("X", "y", "progress", "first_results", "keep")
    options = SimpleNamespace(**{name: value for name, value in arguments.items() if name not in unplanned})
    return Run(make_plan(open_table(X, y, types, log, missing), options), keep).go(progress, first_results)
