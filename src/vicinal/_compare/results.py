"""The results of a comparison: `MethodResult` of a method, `Comparison` of the whole."""

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from vicinal._compare.words import comparison_notes, comparison_table, result_tables, verdict
from vicinal._detect.imputer import DensityImputer
from vicinal._detect.steps import flat_steps
from vicinal._pages import fragment, has_templates
from vicinal._plain import plain

if TYPE_CHECKING:
    import pandas as pd


# A difference that is not clear in fewer folds may be clear in so many.
MORE_FOLDS = 15
# The score that determines the verdict, by kind: the first of these that is available.
MAIN = {"metric": ("accuracy", "r2"), "density": ("log_likelihood",)}


def main_of(kind: str, by_name: dict[str, Any]) -> Any:
    """Return the entry of the score that decides, or None."""
    return next((by_name[name] for name in MAIN[kind] if name in by_name), None)


@dataclass(frozen=True)
class MethodResult:
    """The results of one metric or density.

    Attributes
    ----------
    name, label : str
    kind : "metric" or "density"
    learned : bool
        Whether it is compared with the best plain method.
    scores : dict of str to array
        One value per fold: "accuracy", "recall@1", ..., "purity" for metrics, or "r2" and "mean_error" if the target is a
        number; "log_likelihood" for densities.
    intervals : dict of str to Interval
        Mean and 95 % interval of each score.
    curve : array or None
        Purity of the first k neighbours of held-out rows, k = 1, 2, ...
    differences : dict of str to Interval
        Differences from the best plain method on the same folds; the intervals of the learned methods of one kind hold
        simultaneously.
    failure : str or None
        The reason why there is no score.
    note : str or None
        Further information, such as fits that did not converge.
    seconds : float
        The time for all folds.
    not_judged : str or None
        The reason why the verdict does not use its scores: fits that did not converge, or values that repeat.
    promising : bool
        Whether the difference is not clear, but would be if more folds had the same mean and spread.
    """

    name: str
    label: str
    kind: str
    learned: bool
    scores: dict
    intervals: dict
    curve: np.ndarray | None
    differences: dict
    failure: str | None
    note: str | None
    seconds: float
    not_judged: str | None = None
    promising: bool = False

    @property
    def judged(self) -> bool:
        """Whether it has scores that the verdict can use."""
        return self.failure is None and self.not_judged is None

    @property
    def main(self) -> Any:
        """The interval of the score that decides; None if there is no score."""
        return main_of(self.kind, self.intervals)

    @property
    def difference(self) -> Any:
        """The interval of its difference from the best plain method; None for that one itself."""
        return main_of(self.kind, self.differences)

    @property
    def scale(self) -> str:
        """The scale of its main score: "metric" (a share), "r2" or "density" (nats)."""
        return "r2" if "r2" in self.intervals else self.kind


@dataclass(frozen=True)
class Comparison:
    """The result of `compare`; print it, or read its fields.

    Attributes
    ----------
    metrics, densities : list of MethodResult
        The results of each method.
    verdict : str
        One sentence, or two if both metrics and densities were compared. It begins with the base rate if no metric reaches it.
    helped : dict
        For "metric" and "density": "helped", "hurt", "unclear", or None if nothing was compared.
    reference, best : dict
        The name of the best plain and of the best learned method of each kind.
    n_rows, n_features, n_neighbors, n_folds : int
        The numbers of rows, of columns, of neighbours per prediction, and of folds.
    task : "classes", "numbers" or None
        What was predicted from the neighbours; None without y.
    classes : list of str
        The names of the classes; empty if there are none.
    largest_class : float or None
        The accuracy of always predicting the largest class.
    notes : list of str
        Notes about the data and the methods.
    types : dict of str to ColumnType
        The kind of each column.
    settings : dict
        The arguments that reproduce this result: ``compare(X, y, **settings)``.
    rows : array
        Positions of the rows that were compared.
    methods : dict
        By kind and name, how each method was fitted; `estimator` gives the estimator.
    """

    helped: dict
    reference: dict
    best: dict
    n_rows: int
    n_features: int
    n_neighbors: int
    n_folds: int
    task: str | None
    classes: list
    largest_class: float | None
    metrics: list
    densities: list
    notes: list
    types: dict
    settings: dict
    rows: np.ndarray = field(repr=False)
    methods: dict = field(repr=False)

    def __str__(self) -> str:
        return comparison_table(self)

    @property
    def verdict(self) -> str:
        """The verdict as one or two sentences."""
        return verdict(self)

    def to_frame(self) -> "pd.DataFrame":
        """Return a table with a line per method: kind, name, learned, score and difference with their intervals, and judged.

        Returns
        -------
        DataFrame
        """
        import pandas as pd

        lines = []
        for result in [*self.metrics, *self.densities]:
            score, gain = result.main, result.difference
            line = {"kind": result.kind, "name": result.name, "learned": result.learned, "scale": result.scale}
            line |= {"score": score.mean if score else None, "gain": gain.mean if gain else None}
            line |= {"gain_low": gain.low if gain else None, "gain_high": gain.high if gain else None}
            lines.append(line | {"judged": result.judged, "note": result.failure or result.note})
        return pd.DataFrame(lines)

    def _repr_html_(self) -> str | None:
        if not has_templates():
            return None  # a notebook then prints the text
        return fragment("comparison.html", comparison=self, tables=result_tables(self), notes=comparison_notes(self))

    @property
    def has_next_step(self) -> bool:
        """Whether something is to be done next, besides reading the report: a method helped, or more folds may show that one does."""
        return "helped" in self.helped.values() or any(result.promising for result in [*self.metrics, *self.densities])

    @property
    def next_step(self) -> str:
        """The Python code that follows from the verdict."""
        if self.has_next_step and self.next_fit is not None:
            return self.next_fit
        return f"vicinal.report(X{', y' if self.task else ''}, comparison=comparison).save('report.html')"

    @property
    def next_fit(self) -> str | None:
        """The Python code that fits the method to use, a plain one if no learned one helped, or that compares in more folds.

        None if no method is judged.
        """
        arguments = {"metric": "X, y", "density": "X"}
        for kind in arguments:
            if self.helped[kind] == "helped":
                return f"comparison.estimator({kind!r}, {self.best[kind]!r}).fit({arguments[kind]})"
        if self.has_next_step:
            return (
                f"vicinal.compare(X{', y' if self.task else ''}, n_repeats={MORE_FOLDS // self.settings['n_splits']})"
            )
        plain = next((kind for kind in arguments if self.reference[kind] is not None), None)
        return plain and f"comparison.estimator({plain!r}, {self.reference[plain]!r}).fit({arguments[plain]})"

    def result(self, kind: str, name: str) -> Any:
        """Return the MethodResult of a kind ("metric" or "density") and name."""
        for result in self.metrics if kind == "metric" else self.densities:
            if result.name == name:
                return result
        raise KeyError(f"there is no {kind} {name!r} in this comparison.")

    def estimator(self, kind: str, name: str) -> Any:
        """Return the unfitted estimator behind a line of the table, as it was cross-validated.

        It takes the raw columns: scaling and projections are its first steps.

        Parameters
        ----------
        kind : {"metric", "density"}
            The kind of the method.
        name : str
            The name of the method, as in the table.

        Returns
        -------
        estimator
            With ``transform`` (a metric) or ``score_samples`` (a density; :func:`vicinal.tables.score_rows` gives
            log-densities in the units of the data, averaged over the noise on rounded columns).
        """
        return self.with_imputer(clone(self.methods[kind][name].estimator))

    def with_imputer(self, estimator: Any) -> Any:
        """Return a pipeline of an imputer and the estimator, if missing values were filled in; else the estimator itself.

        Parameters
        ----------
        estimator : estimator
            An estimator that takes complete rows.

        Returns
        -------
        estimator
        """
        if self.settings.get("missing") != "impute":
            return estimator
        return make_pipeline(DensityImputer(), *flat_steps(estimator))

    def to_dict(self) -> dict[str, Any]:
        """Return the whole result as plain values for JSON."""
        content = {"verdict": self.verdict} | {
            part.name: getattr(self, part.name) for part in fields(self) if part.repr
        }
        content["types"] = {name: str(kind) for name, kind in self.types.items()}
        for name in ("metrics", "densities"):
            content[name] = [_fields_of(result) for result in content[name]]
        return plain(content)


def _fields_of(result: MethodResult) -> dict[str, Any]:
    """Return the fields of a result in the JSON document."""
    names = ("name", "label", "learned", "scores", "intervals", "difference", "curve", "failure", "not_judged", "note")
    values = {"purity_curve" if name == "curve" else name: getattr(result, name) for name in names}
    return {**values, "seconds": round(result.seconds, 3)}
