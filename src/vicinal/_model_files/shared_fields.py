"""Fields that the declarations of several classes have."""

from vicinal._model_files.fields import FLAG, Fields, count, floats, maybe, number, one_of
from vicinal._model_files.parameters import BACKENDS

# Squares of larger entries overflow, and estimators refuse to be fitted to them.
LARGEST = 1e150

ENGINE_USED: Fields = {"engine_": maybe(one_of(*BACKENDS)), "certified_row_error_": maybe(number(least=0))}

PATH: Fields = {"objectives_": floats("p", finite=False), "n_iter_": count(), "converged_": FLAG}
