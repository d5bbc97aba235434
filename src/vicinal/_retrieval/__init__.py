"""The implementation of `vicinal.retrieval`.

::

      search.py       `search`: exact search in a corpus that may be larger than memory
      relevance.py    pairs, labels or judgements as the relevant rows of each query
      measures.py     recall, precision, nDCG, ... from the grades of the rows that were found
      evaluation.py   `evaluate`: measures per query, their means, and bootstrap intervals
      adaptation.py   `adapt`: a map is fitted, chosen and measured on separate parts of the pairs
      query_map.py    `QueryMap`: a map of the queries alone
      duplicates.py   `duplicate_threshold`: the score up to which pairs are duplicates, with a bound on the share of false ones
"""
