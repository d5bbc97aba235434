"""Plain values for JSON.  Imports nothing heavy."""

import math
import numbers
from collections.abc import Mapping
from typing import Any


def plain(value: Any) -> Any:
    """Return a value for JSON: numbers that are not finite and missing values as None, arrays as lists, other objects as text.

    Text is that of Python: ``repr`` for objects that hold parameters, such as estimators, and ``str`` for others, such as dates.
    """
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    if hasattr(value, "tolist"):  # an array, or a number of NumPy
        return plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if str(value) in ("NaT", "<NA>"):  # marks of pandas for missing values
        return None
    return repr(value) if hasattr(value, "get_params") or hasattr(value, "__dataclass_fields__") else str(value)


def rounded(value: float, digits: int = 5) -> float | None:
    """Return a number to some significant digits; None if it is not finite."""
    value = float(value)
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None
