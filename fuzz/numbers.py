"""Results are correct and do not depend on threads, tiles, budgets, engines, precisions, translations and orders.

More than a third of the cases are small problems that ``mpmath`` solves with 50 digits, from the definition. The others
compare results with each other.
"""

import sys
import warnings
from contextlib import ExitStack, nullcontext
from typing import Any
from unittest.mock import patch

import mpmath
import numpy as np

import vicinal as v
from fuzz.harness import Bad, Case
from vicinal import Engine

CASES = 3_000
UNTIMED = 4  # the first cases import packages and compile kernels
# Tolerances relative to one plus the size of the result, as in the tolerance table of tests/test_engine.py.
TOLERANCE = {"float64": 1e-9, "float32": 2e-4}


def check(case: Case) -> str:
    """Check one problem."""
    kinds = {"mpmath": _truth, "threads": _threads, "tiles": _tiles, "budgets": _budgets, "engines": _engines,
             "precisions": _precisions, "translations": _translations, "permutations": _permutations}  # fmt: skip
    case.what = str(case.choice([*["mpmath"] * 3, *kinds]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return kinds[case.what](case)


def _close(found: Any, expected: Any, precision: str, what: str, factor: float = 1.0) -> None:
    found, expected = np.asarray(found, dtype=float), np.asarray(expected, dtype=float)
    if not np.isfinite(found).all():
        raise Bad(f"{what}: not a number, or infinite")
    error = np.abs(found - expected) / (1.0 + np.abs(expected))
    if error.max(initial=0.0) > factor * TOLERANCE[precision]:
        raise Bad(f"{what} errs by {error.max():.3g}, at most {factor * TOLERANCE[precision]:.3g} is allowed")


def _engine(case: Case, kind: str | None = None, **options: Any) -> Engine:
    kind = kind or str(case.choice(["cpu", "reference"]))
    return Engine(kind, threads=int(case.rng.integers(1, 4)), **options)


# -- against mpmath ----------------------------------------------------------------------------------------------------


def _truth(case: Case) -> str:
    rng = case.rng
    n, d, precision = (
        int(rng.integers(2, 9)),
        int(rng.integers(1, 5)),
        str(case.choice(["float64", "float64", "float32"])),
    )
    width = 10.0 ** rng.uniform(-2, 2)
    offset = float(case.choice([0.0, 0.0, 10.0 ** rng.uniform(0, 10 if precision == "float64" else 3)]))
    X = (rng.normal(size=(n, d)) + offset).astype(precision)
    new = (rng.normal(size=(3, d)) * 10.0 ** rng.uniform(-1, 2) + offset).astype(precision)
    weight = rng.uniform(0.1, 2.0, size=n) if case.chance(0.5) else np.ones(n)
    case.text = f"n={n}, d={d}, {precision}, width {width:.3g}, offset {offset:.3g}"
    density = v.ParzenWindows(width, engine=_engine(case)).fit(X, sample_weight=weight)
    # In float32 a score of size s keeps s times 1e-7, and an offset its own share of digits.
    factor = 1.0 + (offset / width) * (1e-6 if precision == "float64" else 1e-3)
    _close(
        density.score_samples(new), [_log_density(x, X, weight, width) for x in new], precision, "score_samples", factor
    )
    rest = [np.arange(n) != i for i in range(n)]
    expected = [_log_density(X[i], X[keep], weight[keep], width) for i, keep in enumerate(rest)]
    _close(density.score_samples(None), expected, precision, "score_samples(None)", factor)
    codes = np.arange(n) % 2
    soft = v.SoftNeighborsClassifier(bandwidth=width, engine=_engine(case)).fit(X, codes, weight)
    expected = [_class_shares(x, X, weight, width, codes) for x in new]
    if max(-min(_log_density(x, X, weight, width) for x in new), 1.0) * np.finfo(precision).eps < 1e-9:
        _close(soft.predict_proba(new), expected, precision, "predict_proba", 10.0 * factor)
    if n >= 4:
        init = rng.normal(size=(int(rng.integers(1, d + 1)), d)) / width
        metric = v.NCA(len(init), init=init, max_iter=1, engine=_engine(case)).fit(X, codes)
        expected = [_share_of_own_class(X, codes, init)]
        # A share has the errors of the exponents, which are squares of distances in units of the width.
        _close(metric.objectives_[:1], expected, precision, "the objective of NCA", factor * (1.0 + width**-2))
    return "as mpmath says"


def _share_of_own_class(X: np.ndarray, codes: np.ndarray, init: np.ndarray) -> float:
    """Return the mean probability of a row's own class, Eqs. 2 to 4 of the paper."""
    with mpmath.workdps(50):
        A = mpmath.matrix(init.tolist())
        images = [A * mpmath.matrix([mpmath.mpf(float(value)) for value in row]) for row in X]
        total = mpmath.mpf(0)
        for i, image in enumerate(images):
            others = [j for j in range(len(X)) if j != i]
            terms = {j: mpmath.exp(-(mpmath.norm(image - images[j]) ** 2)) for j in others}
            total += mpmath.fsum(terms[j] for j in others if codes[j] == codes[i]) / mpmath.fsum(terms.values())
        return float(total / len(X))


def _terms(x: np.ndarray, X: np.ndarray, weight: np.ndarray, width: float) -> list:
    terms = []
    for row, w in zip(X, weight, strict=True):
        square = mpmath.fsum((mpmath.mpf(float(a)) - mpmath.mpf(float(b))) ** 2 for a, b in zip(x, row, strict=True))
        terms.append(mpmath.mpf(float(w)) * mpmath.exp(-square / (2 * mpmath.mpf(width) ** 2)))
    return terms


def _log_density(x: np.ndarray, X: np.ndarray, weight: np.ndarray, width: float) -> float:
    with mpmath.workdps(50):
        total = mpmath.fsum(_terms(x, X, weight, width)) / mpmath.fsum(map(float, weight))
        normaliser = len(x) * mpmath.log(2 * mpmath.pi * mpmath.mpf(width) ** 2) / 2
        return float(mpmath.log(total) - normaliser)


def _class_shares(x: np.ndarray, X: np.ndarray, weight: np.ndarray, width: float, codes: np.ndarray) -> list[float]:
    with mpmath.workdps(50):
        terms = _terms(x, X, weight, width)
        sums = [
            mpmath.fsum(t for t, c in zip(terms, codes, strict=True) if c == code) for code in range(codes.max() + 1)
        ]
        return [float(part / mpmath.fsum(sums)) for part in sums]


# -- against each other ------------------------------------------------------------------------------------------------


def _problem(case: Case, most: int = 1200) -> tuple[np.ndarray, np.ndarray, str]:
    rng = case.rng
    n, d = int(rng.integers(20, most)), int(rng.integers(1, 7))
    X = np.round(rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-0.5, 0.5, size=d) * 1024) / 1024
    method = str(case.choice(["ParzenWindows", "LCA", "NCA", "ManifoldParzen", "SoftNeighborsClassifier"]))
    case.text = f"{method}, n={n}, d={d}"
    return X, np.arange(n) % 3, method


def _answers(method: str, X: np.ndarray, y: np.ndarray, engine: Engine, new: np.ndarray) -> list[np.ndarray]:
    if method == "ParzenWindows":
        return [v.ParzenWindows(0.7, engine=engine).fit(X).score_samples(new)]
    if method == "LCA":
        model = v.LCA(reg=0.1, max_iter=3, tol=1e-300, solver="em", engine=engine).fit(X)
        return [model.covariance_, model.score_samples(new)]
    if method == "NCA":
        model = v.NCA(init=np.eye(X.shape[1]) * 0.3, max_iter=2, engine=engine).fit(X, y)
        return [model.objectives_[:1]]
    if method == "ManifoldParzen":
        return [v.ManifoldParzen(1, n_neighbors=4, noise=0.3, engine=engine).fit(X).score_samples(new)]
    return [v.SoftNeighborsClassifier(bandwidth=0.7, engine=engine).fit(X, y).predict_proba(new)]


def _threads(case: Case) -> str:
    X, y, method = _problem(case, 3500 if case.chance(0.1) else 1200)  # larger problems visit each pair once
    first, second = (
        _answers(method, X, y, Engine("cpu", threads=threads), X[:50]) for threads in (1, int(case.rng.integers(2, 6)))
    )
    if any(a.tobytes() != b.tobytes() for a, b in zip(first, second, strict=True)):
        raise Bad("other bits with another number of threads")
    return "the same bits"


def _compare(case: Case, one: Engine, other: Engine, precision: str, problem: tuple | None = None) -> str:
    X, y, method = problem or _problem(case)
    for a, b in zip(_answers(method, X, y, one, X[:50]), _answers(method, X, y, other, X[:50]), strict=True):
        _close(a, b, precision, method, 10.0)
    return "the same numbers"


_SIZES = {
    "ARRAY_BLOCK_PAIRS": (8, 18), "COMPILED_BLOCK_PAIRS": (12, 23), "LEAST_BLOCK_PAIRS": (6, 15), "PRODUCT_BLOCK": (6, 10),
    "PRODUCT_ROWS": (3, 7), "FRAME_TILE": (6, 9), "FRAME_ROWS": (3, 8),
}  # fmt: skip


def _tiles(case: Case) -> str:
    """Compare results of other sizes of blocks and tiles: powers of two between the limits in `_SIZES`."""
    engine, (X, y, method) = _engine(case), _problem(case)
    expected = _answers(method, X, y, engine, X[:50])
    sizes = {name: 2 ** int(case.rng.integers(*between, endpoint=True)) for name, between in _SIZES.items()}
    case.text += f", {sizes}"
    modules = [module for name, module in sys.modules.items() if name.startswith("vicinal._engine.")]
    with ExitStack() as patches:
        for module in modules:
            known = {name: size for name, size in sizes.items() if hasattr(module, name)}
            patches.enter_context(patch.multiple(module, **known) if known else nullcontext())
        found = _answers(method, X, y, engine, X[:50])
    for a, b in zip(found, expected, strict=True):
        _close(a, b, "float64", f"{method}, in other tiles", 10.0)
    return "the same numbers"


def _budgets(case: Case) -> str:
    small = f"{int(case.rng.integers(1, 8))} MB"
    return _compare(case, Engine("cpu", memory=small), Engine("cpu"), "float64")


def _engines(case: Case) -> str:
    return _compare(case, Engine("cpu"), Engine("reference"), "float64")


def _precisions(case: Case) -> str:
    X, y, method = _problem(case)
    if method in ("NCA", "LCA"):  # the optimiser may take another path
        method = "ParzenWindows"
    return _compare(case, Engine("cpu", precision="float32"), Engine("cpu"), "float32", (X, y, method))


def _translations(case: Case) -> str:
    X, y, method = _problem(case)
    if method == "LCA":
        method = "ParzenWindows"
    # Whole numbers added to multiples of 1/1024: the sum is exact in float64.
    shift = np.round(case.rng.choice([-1.0, 1.0], size=X.shape[1]) * 10.0 ** case.rng.uniform(0, 10))
    engine = _engine(case)
    case.text += f", shift {np.abs(shift).max():.3g}"
    moved = X + shift
    for a, b in zip(
        _answers(method, moved, y, engine, moved[:50]), _answers(method, X, y, engine, X[:50]), strict=True
    ):
        _close(a, b, "float64", f"{method}, translated", 100.0)
    return "the same numbers"


def _permutations(case: Case) -> str:
    X, y, method = _problem(case)
    if method == "ManifoldParzen":  # ties of neighbours are broken by position
        method = "ParzenWindows"
    order, engine = case.rng.permutation(len(X)), _engine(case)
    pairs = zip(
        _answers(method, X[order], y[order], engine, X[:50]), _answers(method, X, y, engine, X[:50]), strict=True
    )
    for a, b in pairs:
        _close(a, b, "float64", f"{method}, rows in another order", 100.0)
    return "the same numbers"
