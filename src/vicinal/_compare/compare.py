"""Would a learned metric or density help on these data?  A cross-validated comparison that says so either way."""

from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any

from numpy.random import RandomState
from numpy.typing import ArrayLike

from vicinal._compare.plan import Options, make_plan
from vicinal._compare.results import Comparison
from vicinal._compare.running import Run
from vicinal._engine import Engine


def compare(
    X: ArrayLike,
    y: ArrayLike | None = None,
    *,
    task: str = "auto",
    types: Mapping[Any, Any] | None = None,
    missing: str = "refuse",
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

    Everything that is fitted (scaling, whitening, the metric or density) sees the training folds only. Metrics are
    judged by the accuracy of k nearest neighbours, or by R² where the target is a number: held-out rows are the queries,
    the training rows are searched.
    Densities are judged by the mean log-likelihood of held-out rows. Learned methods are set against the best plain
    method on the same folds, with intervals that hold for all of them at once (`corrected_interval`).

    Parameters
    ----------
    X : array-like of shape (n, n_features)
    y : array-like of shape (n,), optional
        Classes, or numbers to predict. Without it only densities are compared.
    task : {"auto", "classes", "numbers"}, default="auto"
        What y holds. "auto" takes numbers with fractions as numbers, and whole ones too when they have more than 20
        values with fewer than 10 rows each on average; anything else as classes.
    types : dict, optional
        What kind columns are of, by name (or position), where you know better than
        :func:`vicinal.tables.column_types`; in its notation. Densities, LCA and LCA-Gauss are learned from amounts:
        continuous columns and lattices. Columns of two values, identifiers and columns that count the rows are kept out
        of them; ``types={"coin": "lattice"}`` lets one in.
    missing : {"refuse", "impute", "marginalise"}, default="refuse"
        With "impute", missing values (NaN) of training rows and of held-out rows are filled in by a
        :class:`DensityImputer` that is fitted to the training rows of the fold. Densities are judged by the held-out rows
        that are complete: of others a part would be the imputer's own work. With "marginalise", metrics are judged in the
        same way, and densities learn from rows with gaps and are judged by what is known of every held-out row; those that
        cannot (Manifold Parzen) are told so.
    metrics, densities : None, list of str or dict, optional
        Which ones: names (see Notes), or a dict of your own unfitted estimators by name, to be judged besides the plain
        methods. None compares all, an empty list none.
    n_neighbors : int, default=5
        Neighbours that vote.
    n_splits : int, default=5
        Folds; fewer if the classes are small.
    n_repeats : int, optional
        Repetitions with other folds; the default is 3 up to 1,000 rows, 2 up to 3,000, then 1.
    max_rows : int, default=20_000
        Larger sets are represented by a random sample of so many rows, classes in proportion.
    fit_rows : int, default=4_000
        Methods whose cost grows with the square of the rows are fitted to so many rows of the training fold; densities
        all see the same ones. Neighbours are searched among all rows of the training fold.
    fast : bool, default=False
        A first answer: at most 5 folds, no repetitions, at most 3,000 rows compared and 500 rows fitted. Fewer rows favour
        methods that have little to learn, and fewer folds make the intervals wider; the notes say what was done.
    random_state : int, default=0
    engine : None, str or Engine, default=None
    progress : callable, optional
        Called as ``progress(done, total, text)`` before each fit to a fold and at the end.
    first_results : callable, optional
        Called as ``first_results(comparison)`` when the methods that take seconds are done in all folds, with their
        comparison; the others follow.
    keep : path, optional
        A file for what is done, one line per method and fold. A later call with the same rows and settings takes what it
        finds there and does the rest: the result is the same, to the last bit.

    Returns
    -------
    Comparison
        Where the user interrupts the work (Ctrl-C) when at least two folds of all methods are done, or all folds of those
        that take seconds: of what is done, which the notes say.

    Notes
    -----
    Metrics: euclidean, z-scored, pca-whitened, lda (plain); rca, lca, lca-gauss, nca (learned). Densities: gaussian,
    parzen-scott, parzen-loo (plain); lca, lca-gauss, manifold-parzen (learned). Log-likelihoods are in the units of the
    data, although the columns are standardised first. Rounded columns get noise of one step while a density is learned
    and scored (:class:`Dequantizer`, 8 draws per held-out row); neighbours are searched among rows without noise.

    A method is "not judged" where some of its fits did not converge or needed a penalty to have an answer, and no
    density is judged where a continuous column repeats its values: such scores can be made arbitrarily high.

    Where the target is a number, partial least squares (pls) takes the place of lda, NCA's rows agree by how close their
    numbers are (``Objective(match="gaussian")``), RCA learns from ten groups of equal size (:class:`BinnedTargetMetric`), and metrics are judged by
    :math:`R^2 = 1 - \\mathrm{MSE} / \\operatorname{Var}(y_\\text{train})` of the mean of k neighbours.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> import vicinal
    >>> X, y = load_wine(return_X_y=True)
    >>> result = vicinal.compare(X, y, metrics=["euclidean", "z-scored", "rca"], densities=[], n_repeats=1)
    >>> print(result.verdict)
    RCA did not clearly help: it has a held-out 5-nearest-neighbour accuracy of 98.3 % where plain z-scored has 96.1 %, ...
    """
    options = Options(
        task=task,
        types=types,
        missing=missing,
        metrics=metrics,
        densities=densities,
        n_neighbors=n_neighbors,
        n_splits=n_splits,
        n_repeats=n_repeats,
        max_rows=max_rows,
        fit_rows=fit_rows,
        fast=fast,
        random_state=random_state,
        engine=engine,
    )
    return Run(make_plan(X, y, options), keep).go(progress, first_results)
