"""The state of each class in a model file: names of fields and permitted values.

There is one declaration per class of the closed set, in the notation of `_model_files/fields`; the modules imported below contain
them. The names of fields are those of files and never change; if a private attribute is renamed, only its declaration needs a
change. Sizes are
n training rows, d features, k components, c classes or clusters and p passes, unless stated otherwise.
"""

from vicinal._model_files.density_states import DENSITY_STATES
from vicinal._model_files.fields import State
from vicinal._model_files.metric_states import METRIC_STATES
from vicinal._model_files.option_states import OPTION_STATES
from vicinal._model_files.sklearn_states import SKLEARN_STATES
from vicinal._model_files.table_states import TABLE_STATES

STATES: dict[str, State] = {**DENSITY_STATES, **METRIC_STATES, **TABLE_STATES}


def state_of(class_name: str) -> State:
    """Return the declaration of a class of the closed set."""
    if class_name.startswith("sklearn."):
        return SKLEARN_STATES[class_name]
    return OPTION_STATES[class_name] if class_name in OPTION_STATES else STATES[class_name]
