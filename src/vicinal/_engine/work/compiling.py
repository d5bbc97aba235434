"""How kernels are compiled: options, the disk cache, and the decorator of their entry points.

Kernels are serial, cached on disk, release the GIL, and run on blocks in threads.

Rules that keep this correct:

1. Only whole kernels are cached on disk, under a name that depends on all sources together (`_sources`): Numba by itself would
   not notice edits in other files, and would run a kernel with another size of its tiles.
2. `_exp` is compiled without `reassoc`, which would cancel its round-to-integer trick; the reductions over j need
   `reassoc` to be vectorised.  LLVM keeps the flags of each instruction when it inlines one into the other.
3. No `ninf` anywhere, because -inf is a legal score (a padded or left-out pair); `nnan` only where maxima are taken,
   and nothing is subtracted there.
4. Signatures are explicit and every array C-contiguous: a second layout would compile a second kernel.
5. Sums over a tile are in the working precision, sums over tiles in float64.
6. Every other compiled function is inlined (`_OPTIONS`), so that results have the same bits whether the kernel was compiled or loaded from the cache.
7. No array is assigned or added to a slice of another: the message about shapes that do not fit takes Numba three seconds to
   compile.  Numbers are allowed.
8. Slices of arrays that threads share are created outside the innermost loops: each one counts a reference atomically, which takes
   as long as a hundred pairs in float32.
"""

import warnings
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from llvmlite import ir
from numba import float32, float64, njit, types
from numba.core.caching import NullCache
from numba.extending import intrinsic

from vicinal._callers import callers_line

Intrinsic = tuple[Any, Callable[..., Any]]  # the signature of a Numba function, and the function that emits its code
_SUMS = {"reassoc", "contract", "nsz", "arcp"}  # fast-math flags of reductions over j


def _can_cache() -> bool:
    """Return whether Numba finds a folder for its disk cache: beside the source, or in the user's cache folder."""
    try:
        njit(cache=True)(_can_cache)
    except RuntimeError:  # a read-only install for a user without a home: compile in each process
        return False
    return True


# For the parts of kernels: functions that Python does not call need no wrapper, each of which takes a tenth of a second to
# compile. They are always inlined: otherwise the process that compiles a kernel would run another copy than a
# process that loads the kernel from the cache, and LLVM may choose another order of additions in each.
_OPTIONS: dict[str, Any] = {
    "error_model": "numpy",
    "no_cfunc_wrapper": True,
    "no_cpython_wrapper": True,
    "forceinline": True,
}
_KERNEL_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
_CACHED = _can_cache()


def _compiled_files(folder: Path) -> list[Path]:
    """Return all sources that kernels are made of, with the constants that are compiled into them: this file, those that import from it, and
    the two files of constants."""
    always = [folder / name for name in ("work/compiling.py", "tuning.py", "accuracy.py")]
    others = [file for file in folder.rglob("*.py") if b"_engine.work.compiling import" in file.read_bytes()]
    return sorted({*always, *others})


def _sources(folder: Path = Path(__file__).parents[1]) -> str:
    """Return a short name of all sources that kernels are made of; empty if they cannot be read."""
    try:
        return sha256(b"".join(file.read_bytes() for file in _compiled_files(folder))).hexdigest()[:12]
    except OSError:
        return ""


_SOURCES = _sources()


@intrinsic
def _to_bits(typing_context: Any, value: Any) -> Intrinsic:
    """Reinterpret a float as the integer with the same bits."""
    bits = types.int64 if value == types.float64 else types.int32

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(bits.bitwidth))

    return bits(value), codegen


@intrinsic
def _from_bits(typing_context: Any, value: Any) -> Intrinsic:
    """Reinterpret an integer as the float with the same bits."""
    real = types.float64 if value == types.int64 else types.float32

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType() if real == types.float64 else ir.FloatType())

    return real(value), codegen


class _Kernel:
    """A compiled entry point, made for one precision at its first use (1 to 3 s, then from the disk cache).

    The signature is explicit, so an unexpected layout is an error here, never a silent second compilation.
    """

    def __init__(self, function: Callable[..., None], signature: Callable[[Any], Any]) -> None:
        function.__qualname__ += f"-{_SOURCES}"  # a part of the name of its file in the cache
        self._dispatcher = njit(fastmath={"contract"}, cache=_CACHED, **_KERNEL_OPTIONS)(function)
        self._signature = signature
        self._ready: set[np.dtype[Any]] = set()
        self.__doc__ = function.__doc__

    def __call__(self, *args: Any) -> None:
        first = args[0]  # an array, or a record of arrays
        dtype = (first[0] if isinstance(first, tuple) else first).dtype
        if dtype not in self._ready:
            signature = self._signature(float64 if dtype == np.float64 else float32)
            try:
                self._dispatcher.compile(signature)
            except Exception as error:  # damaged files in the cache raise errors of many kinds
                self._forget_cache(error)
                self._dispatcher.compile(signature)
            self._ready.add(dtype)
        self._dispatcher(*args)

    _reported: ClassVar[bool] = False  # whether this process has warned about a damaged cache

    def _forget_cache(self, error: Exception) -> None:
        """Empty the disk cache of this kernel, or do without it if it cannot be written."""
        folder, cache = self._dispatcher._cache.cache_path, self._dispatcher._cache
        try:
            cache.flush()
        except OSError:
            self._dispatcher._cache = NullCache()
        if not _Kernel._reported:
            _Kernel._reported = True
            warnings.warn(
                f"Numba's cache of compiled code in {folder} is damaged ({type(error).__name__}), so that it is compiled again. If "
                "this happens more than once, delete the files *.nbi and *.nbc there.",
                RuntimeWarning,
                stacklevel=callers_line(),
            )


def _kernel(signature: Callable[[Any], Any]) -> Callable[[Callable[..., None]], _Kernel]:
    return lambda function: _Kernel(function, signature)
