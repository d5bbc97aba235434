"""The states of option records in a model file: `Engine`, and those of solvers, starts and objectives."""

from vicinal._model_files.fields import FLAG, Kind, State, count, field, maybe, number, one_of
from vicinal._model_files.parameters import ENGINE_KIND, INTEGER, NUMBER, NUMBERS, SPLITS, SPLITTER, TORCH_DEVICE
from vicinal._model_files.sklearn_states import MOST_THREADS

OPTION_STATES: dict[str, State] = {
    "Adam": State(
        {
            "batch_size": count(least=2),
            "learning_rate": number(above=0),
            "weight_decay": number(least=0),
            "early_stopping": FLAG,
            "validation_fraction": number(above=0, most=1),
            "n_iter_no_change": count(least=1),
        }
    ),
    "Engine": State(
        {
            "kind": ENGINE_KIND,
            "threads": field(None, count(least=1, most=MOST_THREADS)),
            # Engine itself reads the string.
            "memory": field(None, number(above=0), Kind("a string such as '512 MB'", lambda x: type(x) is str)),
            "precision": field(None, one_of("float64", "float32")),
            "error": maybe(None, number(least=0, most=0.1)),
            "device": field(None, TORCH_DEVICE),
        }
    ),
    "Objective": State(
        {
            "kind": one_of("accuracy", "likelihood", "pairs"),
            "match": one_of("class", "gaussian", "dot"),
            "match_scale": field(None, NUMBER, NUMBERS),
            "penalty": number(least=0),
        }
    ),
    "Selection": State(
        {
            "criterion": one_of("log_likelihood", "error", "conditional_log_likelihood"),
            "cv": field(INTEGER, SPLITTER, SPLITS),
            "n_components": field(one_of("auto"), INTEGER, NUMBERS),
            "n_neighbors": field(one_of("auto"), INTEGER, NUMBERS),
            "noise": field(one_of("auto"), NUMBER, NUMBERS),
            "max_rows": field(None, count(least=1)),
        }
    ),
    "Shrinkage": State({"target": field(NUMBER, NUMBERS), "weight": number(above=0, most=1e150)}),
    "StochasticEM": State(
        {
            "batch_size": count(least=1),
            "n_candidates": field(None, count(least=2)),
            "discount": number(least=0, most=1),
        }
    ),
    "StochasticGradient": State({"batch_size": field(None, count(least=1))}),
}
