"""Which backend does the pair work: `Engine`, `which_engine`, `pair_reductions`."""

import importlib.util
import numbers
import re
import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from vicinal._engine._blocks import DEFAULT_MEMORY
from vicinal._engine._pool import available_threads

KINDS = ("auto", "cpu", "reference", "torch")

# Below this many pairs times (coordinates + 8) a fit of some ten passes takes NumPy less time than importing Numba does
# (about 0.4 s).  Whether Numba is loaded already must not matter: the two engines differ in the last bits.
_SMALL_WORK = 2e7
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True)
class Engine:
    """Where and how the pair work of an estimator is done; pass it as ``engine=``.

    Parameters
    ----------
    kind : {"auto", "cpu", "reference", "torch"}, default="auto"
        "cpu" is compiled (Numba and BLAS), "reference" plain NumPy, "torch" runs on a torch device. "auto" takes
        "reference" for small problems and "cpu" for larger ones.
    threads : int, optional
        Threads over blocks of rows. The default is what the process may use: CPU affinity, cgroup limits, joblib's
        share of a worker and OMP_NUM_THREADS are honoured. Results do not depend on it.
    memory : int or str, optional
        Memory to use beyond the data and the results, in bytes or as text ("2 GB"). The default is 128 MB; on a GPU, a
        quarter of what is free there.
    precision : {None, "float64", "float32"}, default=None
        The precision of the pair work; None keeps that of the data. Sums over tiles are in float64 either way.
    device : str, optional
        The torch device ("cuda", "cuda:1", "cpu"); only for ``kind="torch"``.

    Examples
    --------
    >>> from vicinal import Engine
    >>> Engine(threads=1, memory="1 GB").memory_bytes
    1073741824
    """

    kind: str = "auto"
    threads: int | None = None
    memory: int | str | None = None
    precision: str | None = None
    device: str | None = None

    def __post_init__(self):
        if self.kind not in KINDS:
            raise ValueError(f"engine must be one of {', '.join(map(repr, KINDS))} or an Engine, got {self.kind!r}.")
        integer = isinstance(self.threads, numbers.Integral) and not isinstance(self.threads, bool)
        if self.threads is not None and not (integer and self.threads >= 1):
            raise ValueError(f"threads must be a positive integer or None, got {self.threads!r}.")
        if self.precision not in (None, "float64", "float32"):
            raise ValueError(f"precision must be None, 'float64' or 'float32', got {self.precision!r}.")
        if self.device is not None and self.kind != "torch":
            raise ValueError(f"device={self.device!r} needs kind='torch', got kind={self.kind!r}.")
        if self.memory_bytes < 2**20:
            raise ValueError(f"memory must be at least 1 MB, got {self.memory!r}.")

    @property
    def memory_bytes(self):
        """The memory budget in bytes, beside a GPU's own."""
        if self.memory is None:
            return DEFAULT_MEMORY
        if isinstance(self.memory, numbers.Real) and not isinstance(self.memory, bool) and np.isfinite(self.memory):
            return int(self.memory)
        match = re.fullmatch(r"\s*(\d+\.?\d*)\s*([KMGT]?)i?B?\s*", str(self.memory), re.IGNORECASE)
        if not match:
            raise ValueError(f"memory must be a number of bytes or text such as '512 MB', got {self.memory!r}.")
        return int(float(match[1]) * _UNITS[match[2].upper()])


def as_engine(engine):
    """Return an Engine for None, a name or an Engine."""
    if engine is None:
        return Engine()
    if isinstance(engine, Engine):
        return engine
    if isinstance(engine, str):
        return Engine(engine)
    raise TypeError(
        f"engine must be None, one of {', '.join(map(repr, KINDS))} or a vicinal.Engine, got {type(engine).__name__}."
    )


@cache
def _numba_is_missing():
    """Whether Numba cannot be used; says so once."""
    if importlib.util.find_spec("numba") is not None:
        try:
            import numba  # noqa: F401

            return False
        except Exception as error:  # a Numba that does not fit this Python or NumPy fails in many ways
            reason = f"{type(error).__name__}: {error}"
    else:
        reason = "it is not installed"
    warnings.warn(
        f"Numba could not be imported ({reason}); the slower NumPy engine is used instead.",
        RuntimeWarning,
        stacklevel=2,
    )
    return True


def _choose(engine, n_queries, n_points, n_features):
    """The backend's kind and the reason."""
    if engine.kind == "cpu" and _numba_is_missing():
        return "reference", "Numba could not be imported"
    if engine.kind != "auto":
        return engine.kind, "it was asked for"
    work = float(n_queries) * n_points * (n_features + 8)
    if work <= _SMALL_WORK:
        return (
            "reference",
            f"{n_queries} x {n_points} pairs in {n_features} dimensions are too few to load compiled kernels",
        )
    if _numba_is_missing():
        return "reference", "Numba could not be imported"
    return "cpu", f"{n_queries} x {n_points} pairs in {n_features} dimensions pay for compiled kernels"


def which_engine(X, engine=None):
    """Say which engine would do the pair work on the rows of X, and why.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
    engine : None, str or Engine
        As given to an estimator.

    Returns
    -------
    str

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import which_engine
    >>> print(which_engine(np.zeros((200, 5))))
    reference: 200 x 200 pairs in 5 dimensions are too few to load compiled kernels
    """
    shape = np.shape(X)
    if len(shape) != 2:
        raise ValueError(f"X must have two dimensions (rows, columns), got shape {shape}.")
    kind, reason = _choose(as_engine(engine), shape[0], shape[0], shape[1])
    return f"{kind}: {reason}"


class _InPrecision:
    """A backend whose coordinates are cast to one precision first."""

    def __init__(self, backend, dtype):
        self._backend, self._dtype = backend, dtype
        self.name = backend.name

    def _cast(self, queries, points):
        same = queries is points
        points = points.astype(self._dtype)
        return points if same else queries.astype(self._dtype), points

    def log_sums(self, queries, points, **options):
        return self._backend.log_sums(*self._cast(queries, points), **options)

    def softmax_means(self, queries, points, values, **options):
        return self._backend.softmax_means(*self._cast(queries, points), values, **options)

    def softmax_spread(self, queries, points, values, **options):
        return self._backend.softmax_spread(*self._cast(queries, points), values, **options)

    def class_shares(self, queries, points, classes, n_classes, **options):
        return self._backend.class_shares(*self._cast(queries, points), classes, n_classes, **options)

    def softmax_scatter(self, queries, points, **options):
        return self._backend.softmax_scatter(*self._cast(queries, points), **options)

    def signed_pull(self, queries, points, match, **options):
        return self._backend.signed_pull(*self._cast(queries, points), match, **options)

    def mutual_pull(self, points, match, **options):
        return self._backend.mutual_pull(points.astype(self._dtype), match, **options)


def pair_reductions(engine, n_queries, n_points, n_features):
    """Return the backend (`_contract.PairReductions`) for a problem of this size.

    Parameters
    ----------
    engine : None, str or Engine
        The estimator's ``engine`` parameter.
    n_queries, n_points, n_features : int
        The size of one call; only "auto" looks at it.
    """
    engine = as_engine(engine)
    kind, _ = _choose(engine, n_queries, n_points, n_features)
    backend: Any
    if kind == "torch":
        from vicinal._engine._torch import TorchReductions

        backend = TorchReductions(engine.device, None if engine.memory is None else engine.memory_bytes)
    elif kind == "cpu":
        from vicinal._engine._cpu import CpuReductions

        backend = CpuReductions(engine.memory_bytes, available_threads(engine.threads))
    else:
        from vicinal._engine._reference import ReferenceReductions

        backend = ReferenceReductions(engine.memory_bytes, available_threads(engine.threads))
    return backend if engine.precision is None else _InPrecision(backend, np.dtype(engine.precision))
