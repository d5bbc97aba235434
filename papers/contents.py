"""The contents of a paper and where they are implemented: every equation, table, figure, algorithm and claim."""

from dataclasses import dataclass
from importlib import import_module

from papers.experiment import PAPERS, Claim


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
        The module of the experiment that shows it, as ``"figure_3"``.
    claims : tuple of str
        Parts of the texts of the claims of the experiment that are about this item; the page shows their verdicts and numbers.
    note : str, default=""
        A remark: an error in the paper, a departure, an extension, or the reason why it is left out.
    """

    place: str
    what: str
    code: str = ""
    test: str = ""
    experiment: str = ""
    note: str = ""
    claims: tuple[str, ...] = ()

    def about(self, claims: list[Claim]) -> list[Claim]:
        """Return those of the claims of its experiment that are about this item."""
        return [claim for claim in claims if any(part in claim.says for part in self.claims)]


def entries(paper: str) -> list[Entry]:
    """Return the contents of a paper, in its order."""
    return import_module(f"papers.{PAPERS[paper][0]}._contents").CONTENTS


def contents(paper: str, claims: dict[str, list[Claim]]) -> list[str]:
    """Return the table for the page, in Markdown.

    Parameters
    ----------
    paper : str
        The key of the paper.
    claims : dict
        The claims by the module of an experiment.
    """
    lines = ["## Contents of the paper and where they are reproduced", ""]
    lines += [
        "Files are in `src/vicinal` and beside it in `papers`, tests in `tests`. The last column has the verdicts and numbers of the claims about the item.",
        "",
    ]
    lines += ["| in the paper | what it is | file | test | result |", "|---|---|---|---|---|"]
    for entry in entries(paper):
        file = entry.code or (f"papers/{PAPERS[paper][0]}/{entry.experiment}.py" if entry.experiment else "")
        verdicts = [
            f"{'holds' if claim.holds else 'does not hold'}: {claim.evidence}"
            for claim in entry.about(claims.get(entry.experiment, []))
        ]
        if entry.claims and not verdicts:
            verdicts = ["not measured yet"]
        tested = "tested" if entry.test and not verdicts else ""
        told = ". ".join(part.rstrip(".") for part in (*verdicts, tested, entry.note) if part)
        cells = [entry.place, entry.what, _code(file), _code(entry.test), told]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return [*lines, ""]


def _code(text: str) -> str:
    return f"`{text}`" if text else ""
