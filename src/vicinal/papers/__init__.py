"""The tables and figures of the four papers, each reproduced by one command.

``vicinal papers lca --figure 3`` runs one of them, ``vicinal papers`` all; see `docs/papers`.

There is one module per table or figure, in the folder of its paper.  Each is an example of the public API and defines

``TITLE``, ``COVERS``
    Its heading, and the names under which ``--figure`` finds it (``"figure 3"``, ``"table 1"``).
``NEEDS``, ``EXTRAS``
    Data sets that it needs in full mode (in quick mode: ``QUICK_NEEDS``), and packages with their extra.
``ORDER``
    Its place in the paper.
``MINUTES``
    The approximate number of minutes on one core, in quick and in full mode.
``REDUCED_RUNS``
    The number of runs (units with a key ``"run"``) in reduced mode; 5 by default.
``units(setting)``
    The work as a list of small dicts, each measured and cached separately, so that an interrupted run can be continued.
``measure(setting, **unit)``
    One unit: numbers and lists, ready for JSON.
``summarise(setting, records)``
    From ``{**unit, **measured}`` of all units to a `Summary`: tables beside the paper's, claims, remarks.
``draw(setting, records)``
    The pictures: a dict from a short name to a matplotlib figure.

Texts on a page take their numbers from the records or from constants, through f-strings; `_prose` raises an error for typed
numbers.  Only the first argument of `Claim`, which states its rule, may contain typed numbers, and the docstring of a module,
which describes the set-up, may contain whole numbers and constants of the module in braces.  A grid should not end at its best
value; if one does, `at_the_end` says so in the evidence.  ``_contents.py`` of each paper lists the contents of the paper and where
they are reproduced.

::

      _list.py, _contents.py       the papers, and the entries of the table of contents that each page shows
      _experiment.py               `Setting`, `Summary`, `Table`, `Claim`, and the experiments of a paper
      _runner.py                   runs the units of an experiment, in several processes by _parallel.py
      _results.py, _source.py      results on disk; they are measured again if the code that they rest on has changed
      _page.py, _prose.py          the page of a paper, and the check of the numbers in its text
      _drawing.py, _arrays.py      parts that several pictures or experiments share

The experiments are not part of the wheel; ``vicinal papers`` works in a checkout.
"""

from vicinal.papers._experiment import Experiment, Setting, data_folder, experiments
from vicinal.papers._list import PAPERS
from vicinal.papers._page import page, text
from vicinal.papers._results import CannotWrite
from vicinal.papers._runner import Outcome, measure, report, run, unmeasured

__all__ = [
    "PAPERS", "CannotWrite", "Experiment", "Outcome", "Setting", "data_folder", "experiments", "measure", "page", "report",
    "run", "text", "unmeasured",
]  # fmt: skip
