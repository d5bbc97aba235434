"""Search with embeddings, measures of its quality, and adapters that improve it.

- :func:`evaluate`: recall, precision, nDCG, MRR and MAP of a search, with raw rows or with a learned map, with intervals;
- :func:`search`: find the best rows of a corpus for some queries, exactly, in blocks that fit a memory budget;
- :func:`adapt`: learn a map from rows that belong together, and measure on other rows whether it helps;
- :class:`QueryMap`: a map of the queries alone, for a corpus that stays as it is stored;
- :func:`duplicate_threshold`: the score up to which pairs are duplicates, with a bound on the share of false ones;
- :func:`pairs_to_label`: a random sample of the pairs that a search has found, to be labelled for it.

They compare directions (cosines) by default, because embeddings are usually compared in this way. A learned
map is a fitted metric or a pipeline; for embeddings it is usually
``make_pipeline(Normalizer(), RCA(), Normalizer())``.
"""

from vicinal._retrieval.adaptation import Adaptation, adapt
from vicinal._retrieval.duplicates import DuplicateThreshold, PairsToLabel, duplicate_threshold, pairs_to_label
from vicinal._retrieval.evaluation import Evaluation, evaluate
from vicinal._retrieval.query_map import QueryMap
from vicinal._retrieval.search import Found, search

__all__ = [
    "Adaptation",
    "DuplicateThreshold",
    "Evaluation",
    "Found",
    "PairsToLabel",
    "QueryMap",
    "adapt",
    "duplicate_threshold",
    "evaluate",
    "pairs_to_label",
    "search",
]


def __dir__() -> list[str]:
    return sorted(__all__)
