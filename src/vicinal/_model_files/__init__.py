"""The model files of `vicinal.io`: their format and permitted contents, writing, reading, and exports.

::

      estimator  ->  writer.py: a tree of JSON values and arrays  ->  model_file.py: bytes with a checksum  ->  replacing.py
      estimator  <-  reader.py: checks everything, then creates   <-  model_file.py: checks the bytes       <-  file

      permitted contents, which both the writer and the reader check
          types.py         the closed set of classes and dtypes
          parameters.py    the permitted values of parameters
          states.py        the declared fitted attributes of each class, collected from density_states.py, metric_states.py,
                           table_states.py, option_states.py and sklearn_states.py
          fields.py        the notation of these declarations
          shared_fields.py fields that several classes have           networks.py    networks of torch as names and arrays

      exports.py, unit_length.py               the learned map for NumPy, torch, faiss, ONNX and sentence-transformers
"""
