"""How pieces of work travel to Dask workers: their code, with references in place of large arrays."""

import hashlib
import io
import uuid
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import cloudpickle
import numpy as np

_INLINE_BYTES = 2**12  # larger arrays travel apart from the code, once to each worker


class Recipe(NamedTuple):
    """How workers recreate an object: the object of this process, code with references, and the data and recipes that it needs."""

    made: "weakref.ref[Any]"
    code: bytes
    data: dict[str, np.ndarray]
    used: dict[str, bytes]


class Place(NamedTuple):
    """How workers find an object of this process: the recipe, and the attribute of its result.

    The object is kept, so that no other object can get its identity meanwhile.
    """

    thing: Any
    key: str
    path: tuple[Any, ...]


class Packed:
    """The conversion of objects to code that is sent to workers.

    Parameters
    ----------
    recipes : Recipes
        The objects that workers can recreate.
    filled : tuple of arrays
        The arrays that the work fills; workers have their own.
    constant : bool
        Whether the arrays no longer change, so that their digests can be kept.

    Attributes
    ----------
    data : dict
        The arrays that must be on a worker, by digest.
    used : dict
        The code of the recipes that are referred to, by key.
    """

    def __init__(self, recipes: "Recipes", filled: tuple[np.ndarray, ...] = (), constant: bool = False) -> None:
        self._recipes, self._constant = recipes, constant
        self._filled = {id(array): i for i, array in enumerate(filled)}
        self._places = recipes.places()
        self.data: dict[str, np.ndarray] = {}
        self.used: dict[str, bytes] = {}

    def dumps(self, something: Any) -> bytes:
        """Return the code of functions and other objects."""
        file = io.BytesIO()
        _Pickler(file, self.reference).dump(something)
        return file.getvalue()

    def reference(self, thing: Any) -> tuple[str, Any, Any] | None:
        """Return the reference that replaces an object; None if it is sent as it is."""
        if id(thing) in self._filled:
            return "filled", self._filled[id(thing)], None
        if id(thing) in self._places:
            _, key, path = self._places[id(thing)]
            recipe = self._recipes[key]
            self.data |= recipe.data
            self.used |= {**recipe.used, key: recipe.code}
            return "made", key, path
        if isinstance(thing, np.ndarray) and thing.nbytes >= _INLINE_BYTES and not thing.dtype.hasobject:
            digest = self._recipes.digest(thing, self._constant)
            self.data[digest] = thing
            return "data", digest, None
        if type(thing).__name__ in ("CPUDispatcher", "_Kernel"):  # compiled functions: the worker has its own
            function = getattr(thing, "_dispatcher", thing).py_func
            return "kernel", function.__module__, function.__name__
        return None


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    def __init__(self, file: io.BytesIO, reference: Callable[[Any], Any]) -> None:
        super().__init__(file)
        self._reference = reference

    def persistent_id(self, thing: Any) -> Any:
        return self._reference(thing)


class Recipes:
    """The objects that workers can recreate from their data, for as long as they exist in this process."""

    def __init__(self) -> None:
        self.problem = uuid.uuid4().hex
        self._recipes: dict[str, Recipe] = {}
        self._digests: dict[int, tuple[weakref.ref[np.ndarray], str]] = {}

    def __getitem__(self, key: str) -> Recipe:
        return self._recipes[key]

    def add(self, made: Any, make: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """Record that ``make(*args)`` gives `made`; the arguments must not change afterwards."""
        self._recipes = {key: recipe for key, recipe in self._recipes.items() if recipe.made() is not None}
        packed = Packed(self, constant=True)
        code = packed.dumps((make, args))
        self._recipes[_digest(code)] = Recipe(weakref.ref(made), code, packed.data, packed.used)

    def alive(self) -> frozenset[str]:
        """Return the recipes of the objects that still exist in this process."""
        return frozenset(key for key, recipe in self._recipes.items() if recipe.made() is not None)

    def places(self) -> dict[int, Place]:
        """Return where workers find objects of this process, by identity."""
        found: dict[int, Place] = {}
        for key, recipe in self._recipes.items():
            made = recipe.made()
            if made is None:
                continue
            for name, value in getattr(made, "__dict__", {}).items():
                if isinstance(value, np.ndarray):
                    found[id(value)] = Place(value, key, (name,))
                elif isinstance(value, tuple):
                    found |= {
                        id(part): Place(part, key, (name, i))
                        for i, part in enumerate(value)
                        if isinstance(part, np.ndarray)
                    }
            found[id(made)] = Place(made, key, ())
        return found

    def digest(self, array: np.ndarray, constant: bool) -> str:
        """Return a string that distinguishes arrays, bit for bit; it is cached for those that do not change."""
        known = self._digests.get(id(array))
        if known is not None and known[0]() is array:
            return known[1]
        head = f"{array.shape} {array.dtype.str} {array.flags.f_contiguous and not array.flags.c_contiguous} ".encode()
        digest = _digest(head, np.ascontiguousarray(array))
        if constant:
            self._digests[id(array)] = weakref.ref(array), digest
        return digest


def _digest(*parts: Any) -> str:
    found = hashlib.sha1(usedforsecurity=False)  # the fastest here: vectors of all rows are digested in each pass
    for part in parts:
        found.update(part)
    return found.hexdigest()
