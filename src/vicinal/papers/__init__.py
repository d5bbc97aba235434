"""The tables and figures of the four papers, each reproduced by one command.

``vicinal papers lca --figure 3`` runs one of them, ``vicinal papers`` all; see `docs/papers`.

One module a table or figure, in the folder of its paper.  Each reads as an example of the public API and offers

``TITLE``, ``COVERS``
    Its heading, and the names under which ``--figure`` finds it (``"figure 3"``, ``"table 1"``).
``NEEDS``, ``EXTRAS``
    Data sets that it cannot do without in full mode (in quick mode: ``QUICK_NEEDS``), and packages with their extra.
``ORDER``
    Its place in the paper.
``MINUTES``
    About how many minutes it takes on one core, in quick and in full mode.
``REDUCED_RUNS``
    How many runs (units with a key ``"run"``) reduced mode has; 5 unless it says otherwise.
``units(setting)``
    The work as a list of small dicts, each measured and cached by itself: an interrupted run goes on where it was.
``measure(setting, **unit)``
    One unit: numbers and lists, ready for JSON.
``summarise(setting, records)``
    From ``{**unit, **measured}`` of all units to a `Summary`: tables beside the paper's, claims, remarks.
``draw(setting, records)``
    The pictures: a dict from a short name to a matplotlib figure.

A text that ends on the page takes its numbers from the records or from constants, through an f-string: `_prose` refuses typed
ones.  Only the first argument of `Claim`, which states its rule, has numbers of its own; and the docstring of a module, on the set-up,
may have whole ones and constants of the module in braces.  A grid does not end at its best value; where one does, `at_the_end` says so in
the evidence.  ``_contents.py`` of each paper lists everything that the paper has and where it is here.

`Setting`, `Summary`, `Table` and `Claim` are in `_experiment`; `_runner` runs (in several processes by `_parallel`) and caches,
`_page` writes the page of a paper.

The papers are no part of the wheel: who installs LCA does not need them.  ``vicinal papers`` works from a checkout.
"""

from vicinal.papers._experiment import Setting, data_folder, experiments
from vicinal.papers._list import PAPERS
from vicinal.papers._page import page, text
from vicinal.papers._results import CannotWrite
from vicinal.papers._runner import measure, report, run, unmeasured

__all__ = [
    "PAPERS", "CannotWrite", "Setting", "data_folder", "experiments", "measure", "page", "report", "run", "text", "unmeasured",
]  # fmt: skip
