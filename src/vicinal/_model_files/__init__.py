"""The model files of `vicinal.io`: their format and permitted contents, writing, reading, and exports.

::

      estimator  <->  codec.py: a tree of JSON values and arrays  <->  container.py: bytes with a checksum  ->  replacing.py
      model_file.py: the whole, and the scores of the training rows of a density

      permitted contents, which both the writer and the reader check
          classes.py       the closed set of classes, and what a parameter may hold
          states.py        the declared state of each class, with density_states.py, metric_states.py and sklearn_states.py
          kinds.py         the notation of these declarations
          networks.py      networks of torch as names and arrays

      exports.py, unit_length.py               the learned map for NumPy, torch, faiss, ONNX and sentence-transformers
"""
