"""The tables and figures of the four papers, each reproduced by one command.

``vicinal papers lca --figure 3`` runs one of them, ``vicinal papers`` all; see `docs/papers`.

One module a table or figure, in the folder of its paper.  Each reads as an example of the public API and offers

``TITLE``, ``COVERS``
    Its heading, and the names under which ``--figure`` finds it (``"figure 3"``, ``"table 1"``).
``NEEDS``, ``EXTRAS``
    Data sets that it cannot do without in full mode (in quick mode: ``QUICK_NEEDS``), and packages with their extra.
``ORDER``
    Its place in the paper.
``units(setting)``
    The work as a list of small dicts, each measured and cached by itself: an interrupted run goes on where it was.
``measure(setting, **unit)``
    One unit: numbers and lists, ready for JSON.
``summarise(setting, records)``
    From ``{**unit, **measured}`` of all units to a `Summary`: tables beside the paper's, claims, remarks.
``draw(setting, records)``
    The pictures: a dict from a short name to a matplotlib figure.

`Setting`, `Summary`, `Table` and `Claim` are in `_experiment`; `_runner` runs and caches, `_page` writes the page of a paper.
"""

from vicinal.papers._experiment import Setting, data_folder, experiments
from vicinal.papers._list import PAPERS
from vicinal.papers._page import page, text
from vicinal.papers._results import CannotWrite
from vicinal.papers._runner import run

__all__ = ["PAPERS", "CannotWrite", "Setting", "data_folder", "experiments", "page", "run", "text"]
