"""Fields and relations that the declarations of several classes have."""

from vicinal._model_files.fields import FLAG, Fields, count, floats, maybe, number, one_of, relation
from vicinal._model_files.parameters import BACKENDS

# Squares of larger entries overflow, and estimators refuse to be fitted to them.
LARGEST = 1e150

SYMMETRIC = "a symmetric matrix with a diagonal of at least 0"

ENGINE_USED: Fields = {"engine_": maybe(one_of(*BACKENDS)), "certified_row_error_": maybe(number(least=0))}

PATH: Fields = {"objectives_": floats("p", finite=False), "n_iter_": count(), "converged_": FLAG}

# A last entry may be that of the best pass again.
PATH_OF_PASSES = relation("n_iter_, objectives_", "at most the length of objectives_", lambda n, path: n <= len(path))

PATH_WITH_AN_END = relation("objectives_", "at least one entry", lambda path: len(path) > 0)
