"""Records: small groups of options that are passed as one parameter of an estimator.

``LCA(solver="stochastic")`` runs a solver with its defaults, and ``LCA(solver=StochasticEM(batch_size=50))`` sets its
options. A record has ``get_params`` and ``set_params`` as estimators do, so that scikit-learn's ``clone`` copies it and
``GridSearchCV`` searches its fields by the name ``solver__batch_size``.
"""

from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

_R = TypeVar("_R", bound="Record")


@dataclass(frozen=True, eq=False)
class Record:
    """The base of all records: a frozen dataclass that checks its fields when it is created.

    Two records are equal if they have the same class and all their fields are equal, including arrays.
    """

    @classmethod
    def named(cls, name: Any) -> Self:
        """Return the record that a string stands for; by default, the record with all defaults."""
        return cls()

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the fields by name, as scikit-learn's estimators do."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def set_params(self, **params: Any) -> Self:
        """Change fields and return the record; nothing is changed if one of the new values is not valid.

        scikit-learn calls this, through ``estimator.set_params(solver__batch_size=50)``, on a record that belongs to
        one estimator alone, because `clone` copies records.
        """
        known = self.get_params()
        for name in params:
            if name not in known:
                raise ValueError(
                    f"{type(self).__name__} has no field {name!r}. Its fields are {', '.join(map(repr, known))}."
                )
        checked = replace(self, **params)
        for name in params:
            object.__setattr__(self, name, getattr(checked, name))
        return self

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        mine, theirs = self.get_params(), other.get_params()
        return all(np.array_equal(mine[name], theirs[name]) for name in mine)

    # `set_params` changes a record, so that it would be lost as a key of a dictionary.
    __hash__ = None  # type: ignore[assignment]


class RecordParametersMixin:
    """Explains ``set_params(solver__batch_size=50)`` when the parameter is a string and not a record."""

    # The record that each parameter may hold.
    _record_types: ClassVar[dict[str, type[Record]]] = {}

    def set_params(self, **params: Any) -> Self:
        """Set the parameters of this estimator, and fields of records by ``parameter__field``.

        Parameters
        ----------
        **params : dict
            The new values by name.

        Returns
        -------
        self
        """
        fields_of: dict[str, dict[str, Any]] = {}
        for key in list(params):
            name, _, field = key.partition("__")
            expected = self._record_types.get(name)
            if not field or expected is None:
                continue
            value = params.get(name, getattr(self, name))
            if not isinstance(value, Record):
                raise ValueError(
                    f"{key} sets a field of a record, but {name}={value!r} is not a record. Set "
                    f"{name}={expected.__name__}({field}=...) instead, or pass {name}={expected.__name__}() first."
                )
            fields_of.setdefault(name, {})[field] = params.pop(key)
        # Copies, because another estimator may hold the same record.
        changed = {
            name: replace(params.get(name, getattr(self, name))).set_params(**new) for name, new in fields_of.items()
        }
        return super().set_params(**{**params, **changed})  # type: ignore[misc]


def check_record(value: Any, record_type: type[Record], name: str, names: tuple[str | None, ...]) -> None:
    """Raise an error unless a parameter is a record of a type or one of the strings (or None) that stand for one.

    Parameters
    ----------
    value : str, None or Record
        The value that the user passed.
    record_type : type
        The record that the parameter may hold.
    name : str
        The name of the parameter, for the messages.
    names : tuple
        The strings (or None) that the parameter may hold.
    """
    if isinstance(value, record_type):
        return
    choices = f"one of {', '.join(map(repr, names))} or a vicinal.{record_type.__name__}"
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{name} must be {choices}, got {type(value).__name__}.")
    if value not in names:
        raise ValueError(f"{name} must be {choices}, got {value!r}.")


def as_record(value: Any, record_type: type[_R], name: str, names: tuple[str | None, ...]) -> _R:
    """Return the record that a parameter stands for; the arguments are those of `check_record`."""
    check_record(value, record_type, name, names)
    return value if isinstance(value, record_type) else record_type.named(value)
