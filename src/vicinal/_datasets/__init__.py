"""The implementation of `vicinal.datasets`.

::

      toy_sets.py, text_picture.py    the synthetic problems of the papers
      demo_sets.py                    the problems of `vicinal demo`
"""
