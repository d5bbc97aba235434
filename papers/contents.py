"""The contents of a paper and where they are implemented: every equation, table, figure, algorithm and claim."""

from dataclasses import dataclass
from importlib import import_module

from papers.experiment import PAPERS


@dataclass(frozen=True)
class Entry:
    """One item of a paper.

    Parameters
    ----------
    place : str
        Its number or position in the paper: "Eq. 3", "Figure 1", "sec. 6.3, first observation".
    what : str
        A short description.
    code : str
        The file that holds it, below ``src/vicinal`` or ``papers``.
    test : str, default=""
        The test that proves it: ``"test_lca.py::test_name"``, below ``tests``.
    experiment : str, default=""
        The module of the experiment that shows it, as ``"figure_3"``; the page says how many of its claims hold.
    note : str, default=""
        A remark: an error in the paper, a departure, an extension, or the reason why it is left out.
    """

    place: str
    what: str
    code: str = ""
    test: str = ""
    experiment: str = ""
    note: str = ""


def entries(paper: str) -> list[Entry]:
    """Return the contents of a paper, in its order."""
    return import_module(f"papers.{PAPERS[paper][0]}._contents").CONTENTS


def contents(paper: str, results: dict[str, str]) -> list[str]:
    """Return the table for the page, in Markdown.

    Parameters
    ----------
    paper : str
        The key of the paper.
    results : dict
        Short descriptions of the results, by the module of an experiment.
    """
    lines = ["## Contents of the paper and where they are reproduced", ""]
    lines += ["Files are in `src/vicinal` and beside it in `papers`, tests in `tests`.", ""]
    lines += ["| in the paper | what it is | file | test | result |", "|---|---|---|---|---|"]
    for entry in entries(paper):
        file = entry.code or (f"papers/{PAPERS[paper][0]}/{entry.experiment}.py" if entry.experiment else "")
        result = results.get(entry.experiment, "") if entry.experiment else ("tested" if entry.test else "")
        told = ". ".join(part.rstrip(".") for part in (result, entry.note) if part)
        cells = [entry.place, entry.what, _code(file), _code(entry.test), told]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return [*lines, ""]


def _code(text: str) -> str:
    return f"`{text}`" if text else ""
