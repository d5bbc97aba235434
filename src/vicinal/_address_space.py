"""The room that is left in the address space of a process with a limit (``ulimit -v``), for the memory of BLAS and of threads."""

import mmap
from functools import cache

import numpy as np
import scipy.linalg

try:
    import resource
except ImportError:  # Windows has no such limits
    resource = None  # type: ignore[assignment]

MB = 2**20
BLAS_BYTES = 32 * MB  # the working memory that OpenBLAS allocates for each thread that uses it
# A thread also has a stack, usually of 8 MB, and glibc reserves 64 MB for what it allocates.
THREAD_BYTES = 104 * MB


def has_room(n_bytes: int) -> bool:
    """Return whether this process may map so many more bytes; always True without a limit on its address space."""
    if resource is None or resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
        return True
    try:
        mmap.mmap(-1, n_bytes).close()
    except OSError:
        return False
    return True


def threads_with_room(n_threads: int) -> int:
    """Return the number of threads, at most `n_threads` and at least one, for which there is room."""
    while n_threads > 1 and not has_room(n_threads * THREAD_BYTES):
        n_threads -= 1
    return n_threads


@cache
def allocate_blas_memory() -> None:
    """Let OpenBLAS allocate the working memory of this thread; raise a MemoryError if there is no room for it.

    Without room, NumPy's OpenBLAS would end the process at its first use, and SciPy's (0.3.30) would try again forever.
    """
    if not has_room(2 * BLAS_BYTES):
        raise MemoryError(
            f"linear algebra needs {2 * BLAS_BYTES // MB} MB of address space for the working memory of BLAS, and the limit of "
            "this process leaves less. Raise the limit (ulimit -v)."
        )
    np.linalg.cholesky(np.eye(2))
    scipy.linalg.cholesky(np.eye(2))
