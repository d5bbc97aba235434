"""A model file as a whole: its estimator, and for a density of the command the scores of its training rows."""

import json
import os
import warnings
from collections.abc import Callable
from os import PathLike
from typing import Any, NamedTuple

import sklearn
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from vicinal._callers import callers_line
from vicinal._model_files.codec import Reader, Writer
from vicinal._model_files.container import parse_json, read_arrays, write_arrays
from vicinal._version import __version__

_RANKED = "density of the detector"  # what the file of a ranked density stands for


class Model(NamedTuple):
    """What a model file holds.

    estimator : the estimator that was saved
    detector : the DensityOutlierDetector of this density, if the file has the scores of the training rows; otherwise None
    """

    estimator: Any
    detector: Any


def write_model(
    estimator: BaseEstimator, path: str | PathLike[str], *, training_rows: bool = True, ranked: bool = False
) -> None:
    """Write an estimator; with `ranked`, the density of a DensityOutlierDetector together with the scores of its training rows.

    Such a file is that of the detector, with a mark that the estimator is its density.
    """
    writer = Writer(training_rows=training_rows)
    tree: dict[str, Any] = {"vicinal": __version__, "sklearn": sklearn.__version__}
    if ranked:
        tree["is"] = _RANKED
    tree["estimator"] = writer.estimator(estimator)
    write_arrays(path, json.dumps(tree, separators=(",", ":"), allow_nan=False), writer.arrays)
    if writer.callbacks:
        warnings.warn(
            f"the model file does not contain {' and '.join(writer.callbacks)}, because a file never contains functions. The loaded "
            "estimator has callback=None; set it again with set_params before the next fit.",
            UserWarning,
            stacklevel=callers_line(),
        )


def read_model(path: str | PathLike[str]) -> Model:
    """Return what a model file holds."""
    return read(path, _model_of)


def read(path: str | PathLike[str], make: Callable[[Any, Any], Any]) -> Any:
    """Return what a function makes of the description and the arrays of a file; raise an error with the reason if that fails."""
    try:
        text, arrays = read_arrays(path)
        return make(parse_json(text), arrays)
    except FileNotFoundError:
        raise
    except MemoryError:
        raise ValueError(f"cannot load {os.fspath(path)!r}: the model does not fit into memory.") from None
    except OSError as error:
        raise ValueError(f"cannot load {os.fspath(path)!r}: {error.strerror or error}.") from error
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        # The checksum agrees, so this was written on purpose, or by another vicinal.
        reason = str(error) if isinstance(error, ValueError) else f"its description is not valid ({error!r})."
        reason = reason if len(reason) <= 500 else f"{reason[:500]}…"
        raise ValueError(f"cannot load {os.fspath(path)!r}: {reason}") from error


def _model_of(tree: Any, arrays: Any) -> Model:
    reader = Reader(arrays)
    estimator = reader.estimator(tree["estimator"])
    reader.warn_of_other_scikit_learn(str(tree["sklearn"]))
    return Model(estimator.density_, estimator) if _is_ranked(tree) else Model(estimator, None)


def _is_ranked(tree: Any) -> bool:
    """Return whether the estimator of a file is the density of the detector in it; raise an error for other marks."""
    if tree.get("is", _RANKED) != _RANKED or ("is" in tree and tree["estimator"]["class"] != "DensityOutlierDetector"):
        raise ValueError(
            "it is marked as a kind of model that this version of vicinal does not know. Install a newer one."
        )
    return "is" in tree


def _estimator_in(tree: Any) -> Any:
    """Return the description of the estimator of a file."""
    return tree["estimator"]["attributes"]["density_"] if _is_ranked(tree) else tree["estimator"]


def description_of(tree: Any, arrays: Any) -> dict[str, Any]:
    """Return the contents of a file in short."""
    estimator = _estimator_in(tree)
    return {
        "class": estimator["class"],
        "vicinal": tree["vicinal"],
        "sklearn": tree["sklearn"],
        "parameters": {name: _brief(value) for name, value in estimator["parameters"].items()},
        "attributes": {name: _brief(value) for name, value in estimator["attributes"].items()},
        "arrays": {name: {"dtype": str(array.dtype), "shape": array.shape} for name, array in arrays.items()},
    }


def _brief(tree: Any) -> Any:
    """Return a plain value as it is, anything else in a few words."""
    if not isinstance(tree, (dict, list)):
        return tree
    if isinstance(tree, list):
        return f"list of {len(tree)}"
    return {"array": "array {name}", "estimator": "{class}", "record": "{class}"}.get(tree["is"], "{is}").format_map(
        tree
    )


def components_of(tree: Any, arrays: Any) -> NDArray[Any]:
    """Return the matrix of a metric."""
    estimator = _estimator_in(tree)
    attributes = estimator["attributes"]
    if "components_" not in attributes:
        raise ValueError(
            f"its {estimator['class']} has no components_, so it is not a fitted metric. If it is a pipeline, load it and use "
            "its transform."
        )
    return Reader(arrays).value(attributes["components_"])
