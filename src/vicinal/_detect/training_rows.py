"""The training rows of a fitted density: the rows, their weights, their scores without themselves, constants, and rows with missing values."""

import hashlib
import numbers
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import KFold, check_cv

from vicinal._density.mixture_density import HeldOutRows, MixtureDensityMixin
from vicinal._detect.scores import Part, Ranks
from vicinal._detect.steps import Steps, rows_as_passed
from vicinal._mixtures import MixedMixture, known_patterns


def held_out_parts(density: Any) -> list[Part]:
    """Return the training rows of a density of vicinal, each with the density without it."""
    rows = density._training_rows()

    def part_of(held_out: HeldOutRows) -> Part:
        mixture, points, asked = held_out.mixture, rows, None
        if isinstance(mixture, MixedMixture):
            points, asked = mixture.point_images(), mixture.query_images(rows, left_out=True)
        return Part(
            held_out.positions, points, mixture.kernel_units, density.engine, held_out.log_densities(rows), asked
        )

    return [part_of(held_out) for held_out in held_out_rows(density, np.arange(len(rows)))]


def held_out_rows(density: Any, positions: np.ndarray) -> list[HeldOutRows]:
    """Return training rows with the density without them, on the scale of new rows: discrete scores tie, and ranks count ties."""
    return [
        part._replace(mixture=part.mixture.compared()) if isinstance(part.mixture, MixedMixture) else part
        for part in density._held_out_rows(positions)
    ]


def refitted_parts(model: Any, cv: Any, passed: Any, X: np.ndarray, weight: np.ndarray | None) -> list[Part]:
    """Return the training rows of any density, or pipeline that ends in one, with the density that is fitted to the other folds."""
    if isinstance(cv, numbers.Integral):
        cv = KFold(min(int(cv), len(X)), shuffle=True, random_state=0)

    def part_of(train: np.ndarray, test: np.ndarray) -> Part:
        train, test = np.arange(len(X))[train], np.arange(len(X))[test]  # positions, also where cv gives masks
        weights = as_weights(None if weight is None else weight[train])
        density = clone(model).fit(rows_as_passed(passed, X, train), **weights)
        rows, units = rows_and_units(Steps(density), passed, X)
        scores = np.asarray(density.score_samples(rows_as_passed(passed, X, test)))
        return Part(test, rows, units, getattr(Steps(density).density, "engine", None), scores)

    return [part_of(train, test) for train, test in check_cv(cv).split(X)]


def rows_and_units(steps: Steps, passed: Any, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return rows as the density takes them, and the map to the units of its distances.

    These are the units of the kernel of a density of vicinal, and the standard deviations of the columns for other densities.
    """
    rows = used_columns(steps.density, steps.known(rows_as_passed(passed, X)) if steps.before else X)
    if isinstance(steps.density, MixtureDensityMixin):
        return rows, steps.density._mixture().kernel_units
    spread = rows.std(axis=0, dtype=np.float64)
    return rows, np.divide(1.0, spread, out=np.zeros(len(spread)), where=spread > 0)


def used_columns(density: Any, rows: np.ndarray) -> np.ndarray:
    """Return the columns that a fitted density uses; it may ignore constant ones."""
    active = getattr(density, "active_features_", None)
    return rows if active is None or len(active) == rows.shape[1] else rows[:, active]


def table_in(density: Any) -> np.ndarray | None:
    """Return the training rows with all columns; None where a density has not kept them."""
    rows = density._training_rows() if isinstance(density, MixtureDensityMixin) else None
    return rows if rows is None or rows.shape[1] == density.n_features_in_ else density._with_constants(rows)


def positions_among(rows: np.ndarray, training_rows: np.ndarray) -> np.ndarray:
    """Return for each row the position of an equal training row (the last one), or -1; missing values count as equal."""

    def keys(values: np.ndarray) -> list[bytes]:
        values = np.ascontiguousarray(values, dtype=training_rows.dtype) + 0.0  # + 0.0 turns -0.0 into 0.0
        values[np.isnan(values)] = np.nan  # one of the many bit patterns
        return [row.tobytes() for row in values]

    position = {key: i for i, key in enumerate(keys(training_rows))}
    return np.array([position.get(key, -1) for key in keys(rows)], dtype=np.intp)


def constants_in(steps: Steps) -> np.ndarray:
    """Return a row with the values of columns that are constant in a fitted density's training rows, NaN in the others."""
    table, n_features = table_in(steps.density), [*steps.before, steps.density][0].n_features_in_
    if table is None or not steps.by_column or steps.encoder is not None:  # the encoder knows its constants itself
        return np.full(n_features, np.nan)
    counted = table[steps.density.mixture_.log_weights > -np.inf]
    return steps.in_units(constant_values(counted)[None])[0]


def gaps_in(steps: Steps) -> np.ndarray | None:
    """Return which values of the training rows were missing, for the density or for a step that filled them in; None if none were."""
    densities = [steps.density, *(getattr(step, "density_", None) for step in steps.before)]
    incomplete = [getattr(density, "_incomplete_rows", None) for density in densities]
    rows = next((rows for rows in incomplete if rows is not None), None)
    return None if rows is None else np.isnan(rows)


def constant_values(rows: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
    """Return a row with the values of columns that are equal in all rows of positive weight, and NaN in the others."""
    counted = rows if weight is None else rows[weight > 0]
    return np.where(np.ptp(counted, axis=0) == 0, counted[0], np.nan).astype(np.float64)


def differs_alone(rows: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
    """Return which rows have a value that no other row of positive weight has, in a column in which all others are equal."""
    alone = np.zeros(len(rows), dtype=bool)
    counted = np.arange(len(rows)) if weight is None else np.flatnonzero(weight)
    if len(counted) < 3:
        return alone
    for column in rows.T:
        differs = column[counted] != np.sort(column[counted[:3]])[1]  # the middle one of three is not alone
        if np.count_nonzero(differs) == 1:
            alone[counted[differs]] = True
    return alone


def fingerprint(rows: np.ndarray) -> str:
    """Return a string that identifies a table, bit for bit."""
    rows = np.ascontiguousarray(rows)
    return hashlib.sha256(f"{rows.shape} {rows.dtype} ".encode() + rows.tobytes()).hexdigest()


def weights_in(density: Any) -> np.ndarray | None:
    """Return the weights, of mean one, that a density was fitted with; None if all rows have the same weight."""
    mixture = getattr(density, "mixture_", None)
    log_weights = getattr(mixture, "log_weights", None)
    if log_weights is None or np.ptp(log_weights) == 0:
        return None
    return len(log_weights) * np.exp(log_weights)


def as_weights(weight: np.ndarray | None) -> dict[str, np.ndarray]:
    """Return the weights as keyword arguments of `fit`; an empty dict if there are none."""
    return {} if weight is None else {"sample_weight": weight}


# The least number of training rows with the same columns among which a row can be an outlier: among fewer, no p-value is below 5 %.
FEWEST = 19
_MOST = (
    4000  # training rows that are compared; if there are more with the same columns, an evenly spaced sample of them
)


class RowsByKnown(NamedTuple):
    """The results for rows with missing values.

    p_values : the share of the training rows with the same columns that are as unusual, with the row itself
    log_densities : of the known values
    depths : how far the log-density lies below that of all of these training rows, in nats; 0 if it does not
    """

    p_values: np.ndarray
    log_densities: np.ndarray
    depths: np.ndarray


def rank_by_known(
    steps: Steps, training_rows: np.ndarray, rows: np.ndarray, own: np.ndarray | None = None
) -> RowsByKnown:
    """Rank rows with missing values as new rows, or as training rows without themselves.

    Log-densities of different numbers of columns cannot be compared. Each row is therefore compared with the training rows
    under the marginal density of its known columns. Every training row is scored without itself, and only training rows that
    have these columns are compared: values that a fit has filled in are denser than others. The p-value of a row is 1 if it has no
    known values, or if hardly any training row has them all.

    Parameters
    ----------
    steps : Steps
        Its density is a mixture.
    training_rows, rows : arrays of shape (n, d) and (m, d)
        In the active columns of the density, NaN where a value is missing.
    own : array of shape (m,), optional
        The positions of the rows among the training rows, if they are training rows.
    """
    density, mixture = steps.density, steps.density._mixture()
    parts = held_out_rows(density, np.arange(len(training_rows)))
    ranked = RowsByKnown(np.ones(len(rows)), np.zeros(len(rows)), np.zeros(len(rows)))
    weight = weights_in(density)
    for positions, known in known_patterns(rows):
        having = np.flatnonzero(~np.isnan(training_rows[:, known]).any(axis=1))
        compared = having[np.unique(np.linspace(0, len(having) - 1, min(len(having), _MOST)).astype(int))]
        if own is None:
            marginal = mixture.marginal(known) if len(known) < mixture.n_features else mixture
            scores = marginal.scores_of(np.ascontiguousarray(rows[np.ix_(positions, known)]))
        else:
            scores = _held_out_scores(parts, training_rows, own[positions], known)
        ranked.log_densities[positions] = scores
        if len(compared) < FEWEST:
            continue
        training_scores = _held_out_scores(parts, training_rows, compared, known)
        ranks = Ranks.of(training_scores, None if weight is None else weight[compared])
        itself = np.ones(len(positions))
        if own is not None:  # a row that is among the compared ones has the same score there, to the last bit
            places = np.minimum(np.searchsorted(compared, own[positions]), len(compared) - 1)
            among = compared[places] == own[positions]
            scores, itself = np.where(among, training_scores[places], scores), 1.0 - among
        ranked.p_values[positions] = (itself + ranks.weight_below(scores)) / (len(compared) + itself)
        ranked.depths[positions] = np.maximum(training_scores.min() - scores, 0.0)
    return ranked


def held_out_log_densities(density: Any, training_rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Return the log-densities of the known values of training rows, each without the row; 0 without any known value."""
    scores, parts = np.zeros(len(positions)), list(density._held_out_rows(np.arange(len(training_rows))))
    for members, known in known_patterns(training_rows[positions]):
        scores[members] = _held_out_scores(parts, training_rows, positions[members], known)
    return scores


def _held_out_scores(
    parts: list[HeldOutRows], training_rows: np.ndarray, positions: np.ndarray, columns: np.ndarray
) -> np.ndarray:
    """Return the log-densities of some training rows by some columns, each without the row."""
    scores = np.empty(len(positions))
    for part in parts:
        places = np.full(len(training_rows), -1)
        places[part.positions] = np.arange(len(part.positions))
        mine = np.flatnonzero(places[positions] >= 0)
        if len(mine):
            scores[mine] = part.scores(training_rows[positions[mine]], places[positions[mine]], columns)
    return scores
