"""The state of each class in a model file: attributes and permitted values.

There is one declaration per class of the closed set, in the notation of `_model_files/kinds`; records of options have none, because
their constructors check them. Sizes are n training rows, d features, k components, c classes or clusters and p passes, unless stated
otherwise.
"""

from typing import Any

from vicinal._model_files.density_states import DENSITY_STATES
from vicinal._model_files.kinds import ROWS, State, count, floats, integers, names
from vicinal._model_files.metric_states import METRIC_STATES
from vicinal._model_files.sklearn_states import SKLEARN_STATES

TABLE_STATES: dict[str, State] = {
    "Dequantizer": State({**ROWS, "steps_": floats("d", least=0), "seed_": count()}),
    # The fields of the raw columns, and of the m columns of numbers that are made from them.
    "TableEncoder": State(
        {
            **ROWS,
            "_columns": names("d"),
            "_column_types": names("d"),
            "_sources": integers("m", below="d"),
            "_parts": names("m"),
            "_feature_types": names("m"),
            "_constant_names": names("k"),
            "_constant_texts": names("k"),
        },
    ),
}
STATES: dict[str, State] = {**DENSITY_STATES, **METRIC_STATES, **TABLE_STATES, **SKLEARN_STATES}


def state_of(class_name: str) -> Any:
    """Return the declaration of a class of the closed set; None for records of options."""
    return STATES.get(class_name)
