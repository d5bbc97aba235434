"""The choice of a start: several kinds of directions are tried for a few iterations and evaluated on held-out rows."""

import numpy as np

from vicinal._nca.climb import climb_briefly
from vicinal._nca.init import Start, auto_start, auto_units
from vicinal._nca.objectives import Evaluation, with_penalty
from vicinal._nca.rows import Rows, Sample

TRIAL_ITERATIONS = 5
# Each row of the sample is held out once. More folds cost more and chose no better.
_FOLDS = 3
# With fewer rows, scores of held-out rows are too noisy, and the first kind is used.
_FEWEST_ROWS = 60


def best_start(
    rows: Rows,
    kinds: list[str],
    *,
    objective: str,
    penalty: float | np.ndarray,
    solver: str,
    n_components: int,
    diagonal: bool,
    random_state: np.random.RandomState,
) -> Start:
    """Return the start of the kind that is best on held-out rows, after a few iterations on the others.

    The objective of the training rows cannot decide: with many columns, it reaches its maximum from every start (on wine,
    within 5e-4 after five iterations), and only held-out rows show a difference.
    """
    sample = Sample(rows)
    units = auto_units(rows.X, rows.spread, sample.likelihood)

    def start_for(kind: str, X: np.ndarray, judge: Sample, classes: np.ndarray | None) -> Start:
        return auto_start(
            X,
            rows.spread,
            judge.likelihood,
            units,
            kind=kind,
            n_components=n_components,
            classes=classes,
            diagonal=diagonal,
            random_state=random_state,
        )

    def held_out_value(kind: str) -> float:
        """Return the sum of the objective over the rows of the sample, each under a matrix that was learned without it."""
        total = 0.0
        for held_out, others in folds:
            start = start_for(kind, others.X, others, others.classes)

            def evaluate(A: np.ndarray, others: Sample = others) -> Evaluation:
                return with_penalty(others.objective(A, objective), A, penalty)

            A = climb_briefly(evaluate, start, TRIAL_ITERATIONS, solver)
            total += len(held_out) * sample.value(A, objective, held_out)
        return total

    on_trial = len(kinds) > 1 and units is not None and len(sample.X) >= _FEWEST_ROWS
    folds = sample.folds(_FOLDS) if on_trial else []
    chosen = kinds[int(np.argmax([held_out_value(kind) for kind in kinds]))] if folds else kinds[0]
    classes = rows.targets.values if rows.targets.n_classes else None
    return start_for(chosen, rows.X, sample, classes)
