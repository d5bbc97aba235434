"""The states of table preparation in a model file, in the notation of `_model_files/fields`."""

from vicinal._model_files.fields import State, count, floats, integers, maybe, names, private
from vicinal._model_files.sklearn_states import ROWS

TABLE_STATES: dict[str, State] = {
    "Dequantizer": State({**ROWS, "steps_": floats("d", least=0), "seed_": count()}),
    # The fields of the raw columns, and of the m columns of numbers that are made from them. A lattice has a step, an offset and a share of ties.
    "TableEncoder": State(
        {
            **ROWS,
            "columns": private("_columns", names("d")),
            "column_kinds": private("_column_kinds", names("d")),
            "column_lattices": private("_column_lattices", floats("d", 3, nan=True)),
            "formats": private("_formats", names("d")),
            "sources": private("_sources", integers("m", below="d")),
            "parts": private("_parts", names("m")),
            "feature_kinds": private("_feature_kinds", names("m")),
            "feature_lattices": private("_feature_lattices", floats("m", 3, nan=True)),
            "constant_names": maybe(names("k"), attribute="_constant_names"),
            "constant_texts": maybe(names("k"), attribute="_constant_texts"),
        },
    ),
}
