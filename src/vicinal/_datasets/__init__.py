"""The implementation of `vicinal.datasets`.

::

      toy_sets.py, spiral.py, text_picture.py, face_pairs.py   the synthetic problems of the papers
      demo_sets.py                                             the problems of `vicinal demo`
      real_sets.py                                             loading of real data sets
      real_set_table.py                                        their descriptions and sources
"""
