"""`Engine`, the user's settings for pairwise computations."""

import numbers
import re
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vicinal._callers import callers_line
from vicinal._engine import accuracy, tuning
from vicinal._engine.backends import BACKENDS
from vicinal._records import Record, as_record
from vicinal._tensors import device_of_fit

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True, eq=False)
class Engine(Record):
    """Settings of the pairwise computations of an estimator; pass it as ``engine=``.

    Parameters
    ----------
    kind : {"auto", "cpu", "reference", "dask", "torch"}, default="auto"
        The backend. "cpu" is compiled (Numba and BLAS), "reference" is plain NumPy, "dask" is "cpu" on the workers of
        the active Dask client, and "torch" runs on a torch device. "auto" uses "reference" for small problems and "cpu" for larger ones; see
        :func:`vicinal.which_engine`.
    threads : int, optional
        The number of threads. The default is the number that the process may use, which respects CPU affinity, cgroup
        limits, joblib's share of a worker and OMP_NUM_THREADS. Results do not depend on it.
    memory : int or str, optional
        The working memory, in bytes or as a string ("2 GB"), beyond the rows, one ordered copy and one mapped copy of
        them, and the results. The default is 128 MB; on a GPU it is a quarter of the free memory.
    precision : {None, "float64", "float32"}, default=None
        The precision of the pairwise computations. None keeps the precision of the data. Sums over tiles are
        accumulated in float64 in either case.
    device : str, optional
        The torch device ("cuda", "cuda:1", "cpu"). Only for ``kind="torch"``.
    error : float, optional
        The largest relative error of the sum of any row that skipped pairs may cause. Pairs that are too far apart to
        matter are skipped if that saves time, and an upper bound on their contribution is certified. The default is
        1e-12 in float64 and 1e-7 in float32, which is below the rounding error of the sums. 1e-6 is
        looser and faster; 0 visits every pair.

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
    error: float | None = None

    def __post_init__(self) -> None:
        kinds = ("auto", *BACKENDS)
        if self.kind not in kinds:
            raise ValueError(f"kind must be one of {', '.join(map(repr, kinds))}, got {self.kind!r}.")
        integer = isinstance(self.threads, numbers.Integral) and not isinstance(self.threads, bool)
        if self.threads is not None and not (integer and self.threads >= 1):
            raise ValueError(f"threads must be a positive integer or None, got {self.threads!r}.")
        if self.precision not in (None, "float64", "float32"):
            raise ValueError(f"precision must be None, 'float64' or 'float32', got {self.precision!r}.")
        if self.device is not None and self.kind != "torch":
            raise ValueError(f"device={self.device!r} needs kind='torch', got kind={self.kind!r}.")
        if self.memory_bytes < 2**20:
            raise ValueError(f"memory must be at least 1 MB, got {self.memory!r}.")
        number = isinstance(self.error, numbers.Real) and not isinstance(self.error, bool)
        if self.error is not None and not (number and 0.0 <= self.error <= accuracy.LARGEST_ERROR):
            raise ValueError(f"error must be a number from 0 to {accuracy.LARGEST_ERROR}, or None, got {self.error!r}.")

    def error_in(self, dtype: np.dtype) -> float:
        """Return the error that may be certified for sums in a precision; 0 if every pair must be visited."""
        return accuracy.DEFAULT_ERROR[np.dtype(dtype)] if self.error is None else float(self.error)

    def check_error(self, dtype: np.dtype) -> None:
        """Warn if the requested error is smaller than the rounding error of the precision."""
        least = accuracy.DEFAULT_ERROR[np.dtype(dtype)]
        if self.error is not None and 0.0 < self.error < least:
            warnings.warn(
                f"error={self.error:g} is below {least:g}, the rounding error of sums in {np.dtype(dtype)}: it costs time and "
                f"does not improve results. Use error=None, or error=0 to visit every pair.",
                UserWarning,
                stacklevel=callers_line(),
            )

    @classmethod
    def named(cls, name: str | None) -> "Engine":
        """Return the engine of a backend; None stands for the defaults."""
        return cls() if name is None else cls(name)

    @property
    def memory_bytes(self) -> int:
        """The working memory in bytes on this machine."""
        if self.memory is None:
            return tuning.DEFAULT_MEMORY
        if isinstance(self.memory, numbers.Real) and not isinstance(self.memory, bool) and np.isfinite(self.memory):
            return int(self.memory)
        match = re.fullmatch(r"\s*(\d+\.?\d*)\s*([KMGT]?)i?B?\s*", str(self.memory), re.IGNORECASE)
        if not match:
            raise ValueError(f"memory must be a number of bytes or text such as '512 MB', got {self.memory!r}.")
        return int(float(match[1]) * _UNITS[match[2].upper()])


def as_engine(engine: "Engine | str | None") -> Engine:
    """Return an Engine for None, a name or an Engine: a copy, because ``set_params(engine__error=...)`` changes the original."""
    return replace(as_record(engine, Engine, "engine", (None, "auto", *BACKENDS)))


def works_there(engine: "Engine | str | None") -> bool:
    """Return whether computations on rows that are on a GPU run there, that is, unless the engine names another backend."""
    return as_engine(engine).kind in ("auto", "torch")


def engine_at(engine: "Engine | str | None", X: Any) -> Engine:
    """Return the engine for a tensor of queries: torch, on the tensor's device unless the engine names another."""
    engine = as_engine(engine)
    return replace(engine, kind="torch", device=engine.device or str(X.device))


def fit_engine(estimator: Any) -> "Engine | str | None":
    """Return the engine for a fit of an estimator: that of its parameter, or torch for rows that are a tensor on a GPU."""
    device = device_of_fit(estimator)
    if device is None or as_engine(estimator.engine).kind != "auto":
        return estimator.engine
    return replace(as_engine(estimator.engine), kind="torch", device=device)
