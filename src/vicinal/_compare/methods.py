"""The metrics and densities that `compare` compares, each defined once as an unfitted estimator.

The same estimator is cross-validated, drawn in the report and printed as code: a pipeline from the raw columns
to the metric or density, with scaling and, if there are many columns, a projection as its first steps. Plain methods
do not learn a metric; the learned ones are compared with the best plain method.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.cross_decomposition import PLSRegression
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from vicinal._compare.independent import BesideLevels, IndependentColumns
from vicinal._detect.steps import takes_levels
from vicinal._engine import Engine
from vicinal._tables import ColumnType, Dequantizer

# Pairwise computations in many dimensions are expensive, and few rows are not enough to learn from: the costly methods use
# this many leading principal components of the standardised columns of wide tables.
WIDE = 64
# Share of the standardised variance that may be dropped as rounding or exact dependence of columns.
ALL_VARIANCE = 1.0 - 1e-6
# Metrics that are learned from the same columns as their densities: quantities, and LCA's also from levels.
_AS_DENSITIES = ("lca", "lca-gauss")
# The number of directions of partial least squares, the plain method for numeric targets, as LDA is for classes.
PLS_DIRECTIONS = 5
_ALL_GAUSSIAN = 1e3


class Method(NamedTuple):
    """One line of the table.

    name : its name
    label : its name in the tables
    learned : whether it is a learned method, which is compared with the plain ones
    costly : whether its cost grows with the square of the rows
    estimator : unfitted
    shared : whether a metric and a density of this name are one model, which is then fitted once to the same rows
    repeats : for a plain method on the columns of learned ones, the name of the plain method that it repeats
    beside : the names of those learned methods; it runs if one of them does
    on_request : whether it runs only if it is named
    """

    name: str
    label: str
    learned: bool
    costly: bool
    estimator: Any
    shared: bool = False
    repeats: str = ""
    beside: tuple[str, ...] = ()
    on_request: bool = False

    def after(self, steps: Sequence[Any]) -> Self:
        """Return the method after some first steps."""
        return self._replace(estimator=make_pipeline(*steps, self.estimator)) if steps else self


class Columns(NamedTuple):
    """The columns of the table that densities and metrics use.

    n_columns : the number of columns of the table
    measured : positions of the columns that hold quantities
    steps : the rounding step of each of those, 0 for none
    log : positions among those of columns that hold logarithms
    levels : positions of the columns that hold levels, which densities use beside the quantities
    codes : those of them that are codes of categories, whose distances mean nothing to metrics
    n_levels : the number of levels of all of them together
    """

    n_columns: int
    measured: tuple[int, ...]
    steps: tuple[float, ...]
    log: tuple[int, ...] = ()
    levels: tuple[int, ...] = ()
    codes: tuple[int, ...] = ()
    n_levels: int = 0

    @classmethod
    def of(cls, types: Sequence[ColumnType]) -> Self:
        """Return the columns of these types."""
        measured = tuple(j for j, kind in enumerate(types) if kind.measured)
        log = tuple(place for place, j in enumerate(measured) if types[j].log)
        levels = tuple(j for j, kind in enumerate(types) if kind.has_levels)
        codes = tuple(j for j in levels if types[j].kind == "category")
        n_levels = sum(len(types[j].levels) or 2 for j in levels)
        return cls(len(types), measured, tuple(types[j].step or 0.0 for j in measured), log, levels, codes, n_levels)

    def level_places(self, n_dimensions: int) -> list[int]:
        """Return the positions of the columns of levels after so many dimensions of the quantities."""
        return list(range(n_dimensions, n_dimensions + len(self.levels)))

    @property
    def of_metrics(self) -> tuple[int, ...]:
        """The positions of the columns that metrics use: all but codes."""
        return tuple(j for j in range(self.n_columns) if j not in self.codes)

    def first_steps(self, seed: int, *, training_only: bool, levels: bool = False) -> list[Any]:
        """Return the first steps of a density or, with `training_only`, of a metric that is learned as one.

        With `levels`, the columns of levels follow those of quantities.
        """
        used = (*self.measured, *self.levels) if levels else self.measured
        if not any(self.steps):
            return self.choice(used)
        steps = [*self.steps, *([0.0] * (len(used) - len(self.measured)))]
        noise = Dequantizer(steps, log=self.log, training_only=training_only, random_state=seed)
        return [*self.choice(used), noise]

    def choice(self, used: tuple[int, ...]) -> list[Any]:
        """Return the step that chooses columns; an empty list if they are all."""
        if used == tuple(range(self.n_columns)):
            return []
        return [ColumnTransformer([("used", "passthrough", list(used))])]


def metric_dimensions(n_features: int, n_rows: int) -> int:
    """Return how many principal components of wide tables the costly metrics use: at most one for every two training rows."""
    return n_features if n_features <= WIDE else max(1, min(WIDE, n_rows // 2))


def metric_methods(
    columns: Columns, n_rows: int, seed: int, engine: Engine | str | None, task: str = "classes"
) -> dict[str, Method]:
    """Return all metrics by name, the plain ones first.

    columns : Columns
    n_rows : the number of rows that the costly ones are fitted to; it and the number of columns determine whether
        these and whitening use principal components of the standardised columns instead of the columns
    """
    from vicinal import NCA, RCA, NeuralNCA, Objective
    from vicinal.companions import BinnedTargetMetric

    n_features = len(columns.of_metrics)
    n_dimensions, choice = metric_dimensions(n_features, n_rows), columns.choice(columns.of_metrics)
    lca, lca_gauss = _lca_pair(seed, engine)
    narrow = prepared_columns(n_features, n_dimensions, seed)
    n_measured = len(columns.measured)
    n_local = metric_dimensions(n_measured, n_rows)
    local = (*columns.first_steps(seed, training_only=True), *prepared_columns(n_measured, n_local, seed))
    with_levels = local
    if columns.levels:
        lca = lca.set_params(categorical_features=columns.level_places(n_local))
        with_levels = first_columns(columns, n_local, seed, training_only=True)
    numbers = task == "numbers"
    # A fit that did not converge is not judged, and the default of 50 iterations is often too few. A gain of less than a
    # ten-thousandth of a row is far below the resolution of held-out rows.
    objective = Objective(match="gaussian") if numbers else "accuracy"
    nca = NCA(objective=objective, max_iter=300, tol=1e-4, engine=engine, random_state=seed)
    rca = BinnedTargetMetric(RCA()) if numbers else RCA()
    # Only if it is named: its networks, and whether torch is there, differ between machines, and verdicts must not.
    neural = NeuralNCA(objective="regression" if numbers else "likelihood", random_state=seed)
    methods = [
        *(method.after(choice) for method in _plain_metrics(n_features, n_rows, seed, numbers)),
        *_on_the_same_columns(columns, n_rows, seed, numbers),
        Method("rca", "RCA", True, False, make_pipeline(*choice, StandardScaler(), rca)),
        Method("lca", "LCA", True, True, make_pipeline(*with_levels, lca), shared=True),
        Method("lca-gauss", "LCA-Gauss", True, True, make_pipeline(*local, lca_gauss), shared=True),
        Method("nca", "NCA", True, True, make_pipeline(*choice, *narrow, nca)),
        Method("neural-nca", "NeuralNCA", True, True, make_pipeline(*choice, neural), on_request=True),
    ]
    return {method.name: method for method in methods if n_measured or method.name not in _AS_DENSITIES}


def _plain_metrics(n_features: int, n_rows: int, seed: int, numbers: bool) -> list[Method]:
    """Return the plain metrics of this many columns."""
    n_dimensions = metric_dimensions(n_features, n_rows)
    whitening = PCA(n_dimensions if n_dimensions < n_features else ALL_VARIANCE, whiten=True, svd_solver="full")
    pls, lda = PLSRegression(min(n_features, PLS_DIRECTIONS)), LinearDiscriminantAnalysis()
    methods = [
        Method("euclidean", "Euclidean", False, False, FunctionTransformer()),
        Method("z-scored", "z-scored", False, False, StandardScaler()),
        Method("pca-whitened", "PCA-whitened", False, False, make_pipeline(StandardScaler(), whitening)),
        Method("pls", "PLS", False, False, pls) if numbers else Method("lda", "LDA", False, False, lda),
    ]
    if n_dimensions < n_features:
        leading = make_pipeline(*prepared_columns(n_features, n_dimensions, seed))
        beside = (*_AS_DENSITIES, "nca")
        methods.append(Method("pca", "PCA", False, False, leading, repeats="z-scored", beside=beside))
    return methods


def _on_the_same_columns(columns: Columns, n_rows: int, seed: int, numbers: bool) -> list[Method]:
    """Return the plain metrics on the columns that LCA and LCA-Gauss use, if they do not use those of the other metrics.

    A gain from leaving out columns, or from using categories, is not a gain from learning: a plain metric would have it as well.
    """
    measured, levels = columns.measured, columns.levels
    if not measured:
        return []
    groups: list[tuple[str, str, Any, int, tuple[str, ...]]] = []
    if measured != columns.of_metrics:
        groups.append(("quantities", "quantities only", columns.choice(measured), len(measured), _AS_DENSITIES))
    if columns.codes:
        coded = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
        chosen = [("numbers", "passthrough", list(measured)), ("levels", coded, list(levels))]
        width = len(measured) + columns.n_levels
        groups.append(("categories", "with categories", [ColumnTransformer(chosen)], width, ("lca",)))
    return [
        method._replace(
            name=f"{method.name}-{name}",
            label=f"{method.label}, {label}",
            estimator=make_pipeline(*first, method.estimator),
            repeats=method.repeats or method.name,
            beside=learned,
        )
        for name, label, first, width, learned in groups
        for method in _plain_metrics(width, n_rows, seed, numbers)
    ]


def density_methods(columns: Columns, n_dimensions: int, seed: int, engine: Engine | str | None) -> dict[str, Method]:
    """Return all densities by name, the plain ones first; all are densities of the same columns.

    columns : Columns
    n_dimensions : the number of principal components of the standardised columns that they use; no projection if it is
    the number of measured columns
    """
    from vicinal import LCAGauss, ManifoldParzen, ParzenWindows

    lca, lca_gauss = _lca_pair(seed, engine)
    levels = columns.level_places(n_dimensions)
    # With such a penalty on standardised columns no direction is local: one Gaussian, its covariance shrunk (Ledoit and Wolf)
    # if that helps held-out rows.
    gaussian = LCAGauss(reg=_ALL_GAUSSIAN, tol=1e-5, engine=engine)
    scott, loo = ParzenWindows("scott", engine=engine), ParzenWindows("loo", engine=engine)
    manifold, independent = ManifoldParzen(engine=engine), IndependentColumns(engine)
    with_levels = {"categorical_features": levels} if levels else {}
    methods = [
        Method("gaussian", "Gaussian", False, False, _beside(levels, gaussian)),
        Method("parzen-scott", "Parzen (Scott)", False, True, scott.set_params(**with_levels)),
        Method("parzen-loo", "Parzen (leave-one-out)", False, True, loo.set_params(**with_levels)),
        Method("independent", "Independent columns", False, True, _beside(levels, independent)),
        Method("lca", "LCA", True, True, clone(lca).set_params(**with_levels), shared=True),
        Method("lca-beside", "LCA beside independent categories", True, True, _beside(levels, lca)),
        Method("lca-gauss", "LCA-Gauss", True, True, _beside(levels, lca_gauss), shared=True),
        Method("manifold-parzen", "Manifold Parzen", True, True, _beside(levels, manifold)),
    ]
    first = first_columns(columns, n_dimensions, seed, training_only=False)
    return {method.name: method.after(first) for method in methods if levels or method.name != "lca-beside"}


def _beside(levels: list[int], density: Any) -> Any:
    """Return a density of numbers, beside independent columns of levels if there are any."""
    return BesideLevels(density, levels) if levels else density


def own_metric(name: str, estimator: Any) -> Method:
    """Return a line for a metric of the caller, which takes the columns as they are."""
    return Method(name, name, True, False, estimator)


def own_density(name: str, estimator: Any, columns: Columns, n_dimensions: int, seed: int) -> Method:
    """Return a line for a density of the caller, which takes the same columns as the other densities; levels are the last ones."""
    levels = columns.level_places(n_dimensions)
    if levels and takes_levels(estimator):
        estimator = clone(estimator).set_params(categorical_features=levels)
    else:
        estimator = _beside(levels, estimator)
    return Method(name, name, True, False, estimator).after(
        first_columns(columns, n_dimensions, seed, training_only=False)
    )


def first_columns(columns: Columns, n_dimensions: int, seed: int, *, training_only: bool) -> tuple[Any, ...]:
    """Return the first steps before a density: the quantities, with noise on rounded ones, standardised; and the levels.

    With `training_only`, only the rows of the fit get noise, as for a metric.
    """
    first = columns.first_steps(seed, training_only=training_only, levels=True)
    scaled = prepared_columns(len(columns.measured), n_dimensions, seed)
    if not columns.levels:
        return (*first, *scaled)
    numbers = [("numbers", make_pipeline(*scaled), list(range(len(columns.measured))))] if columns.measured else []
    return (*first, *([ColumnTransformer(numbers, remainder="passthrough")] if numbers else []))


def prepared_columns(n_features: int, n_dimensions: int, seed: int) -> tuple[Any, ...]:
    """Return the first steps of a pipeline: standardised columns, or their leading principal components."""
    if n_dimensions == n_features:
        return (StandardScaler(),)
    return StandardScaler(), PCA(n_dimensions, random_state=seed)


_ONE = Columns(2, (0,), (0.0,), levels=(1,), codes=(1,))


def metric_names() -> tuple[str, ...]:
    """Return the names of all metrics, for classes and for numbers."""
    methods = [method for task in ("classes", "numbers") for method in metric_methods(_ONE, 1, 0, None, task).values()]
    return tuple(dict.fromkeys(method.name for method in methods if not method.repeats))


def density_names() -> tuple[str, ...]:
    """Return the names of all densities."""
    return tuple(density_methods(_ONE, 1, 0, None))


def _lca_pair(seed: int, engine: Engine | str | None) -> tuple[Any, Any]:
    from vicinal import LCA, LCAGauss

    # Scores are compared to hundredths of a nat, so the last digits of the optimum are not needed.
    settings: dict[str, Any] = {"tol": 1e-5, "engine": engine, "random_state": seed}
    return LCA(**settings), LCAGauss(**settings)
