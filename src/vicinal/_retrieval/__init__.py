"""The implementation of `vicinal.retrieval`.

::

      search.py       exact search in a corpus that may be larger than memory
      relevance.py    pairs, labels or judgements as the relevant rows of each query
      measures.py     recall, precision, nDCG, ... from the grades of the rows that were found
      evaluation.py   measures per query, their means, and bootstrap intervals
"""
