"""The page of a paper, in Markdown: its numbers and claims beside ours."""

from typing import TYPE_CHECKING

from vicinal.papers._contents import contents
from vicinal.papers._list import PAPERS
from vicinal.papers._prose import about, refuse_typed_numbers
from vicinal.papers._runner import Outcome

if TYPE_CHECKING:
    from vicinal.papers._experiment import Claim, Table


def page(paper: str, outcomes: list[Outcome]) -> str:
    """Return the page of one paper; raise an error if its text contains a typed number."""
    for outcome in outcomes:
        refuse_typed_numbers(outcome.experiment.module)
    # What has not been measured in a mode may be shown in quick mode.
    mode = next((outcome.setting.mode for outcome in outcomes if outcome.setting.full), "quick")
    lines = [f"# {PAPERS[paper][1]}", ""]
    lines += [f"This page was written by `{_command(paper, mode)}` on {_machines(outcomes)}.", ""]
    lines += [
        "Times are sums over the units of an experiment, several of which can run at the same time (`--jobs N`).",
        "",
    ]
    if mode == "reduced":
        lines += [
            "These are reduced runs: they use the paper's data with fewer runs, and with fewer rows where a section says so. `--full` runs the sizes of the paper.",
            "",
        ]
    if mode == "quick":
        lines += [
            "These are quick runs, with small sizes and without data files. `--full` runs the sizes and data of the paper.",
            "",
        ]
    lines += _overview(outcomes)
    for outcome in outcomes:
        lines += _section(outcome, mode)
    if mode != "quick":
        lines += contents(paper, {outcome.experiment.name: _held(outcome) for outcome in outcomes})
    return "\n".join(lines).rstrip() + "\n"


def _overview(outcomes: list[Outcome]) -> list[str]:
    lines = ["| | claims that hold | time of one core |", "|---|---|---|"]
    for outcome in outcomes:
        duration = _duration(outcome.seconds) if outcome.summary else ""
        lines.append(f"| {outcome.experiment.title} | {_held(outcome)} | {duration} |")
    return [*lines, ""]


def _held(outcome: Outcome) -> str:
    """Return how many claims hold, in a few words."""
    if outcome.summary is None:
        return "skipped"
    claims = outcome.summary.claims
    return f"{sum(claim.holds for claim in claims)} of {len(claims)}"


def _section(outcome: Outcome, mode: str) -> list[str]:
    experiment, summary = outcome.experiment, outcome.summary
    number = experiment.module.COVERS[0]
    command = _command(experiment.paper, outcome.setting.mode, number)
    lines = [f"## {experiment.title}", "", about(experiment.module), ""]
    if summary is None:
        return [*lines, f"Skipped: {outcome.skipped}", ""]
    lines += [f"`{command}` ({_duration(outcome.seconds)}; code: `{experiment.source}`)", ""]
    if outcome.setting.mode != mode:
        lines += [f"This is a quick run, with small sizes and without data files; there is no {mode} run.", ""]
    for table in summary.tables:
        lines += _table(table)
    if summary.claims:
        lines += ["| claim | here | evidence |", "|---|---|---|"]
        lines += [f"| {_cell(c.says)} | {_verdict(c)} | {_cell(c.evidence)} |" for c in summary.claims]
        lines.append("")
    for claim in summary.claims:
        if not claim.holds and claim.departs:
            lines += [f"*Does not hold:* {claim.says}. {claim.departs}", ""]
    for remark in summary.remarks:
        lines += [remark, ""]
    for picture in outcome.pictures:
        lines += [f"![{_cell(experiment.title)}]({picture})", ""]
    return lines


def text(outcome: Outcome) -> str:
    """Return the outcome for a terminal: claims and their evidence."""
    head = f"{outcome.experiment.paper}: {outcome.experiment.title}"
    if outcome.summary is None:
        return f"{head}\n  skipped: {outcome.skipped}"
    lines = [f"{head} ({_duration(outcome.seconds)})"]
    for claim in outcome.summary.claims:
        lines.append(f"  [{_verdict(claim)}] {claim.says}: {claim.evidence}")
        if not claim.holds and claim.departs:
            lines.append(f"      {claim.departs}")
    return "\n".join(lines)


def _verdict(claim: "Claim") -> str:
    if claim.holds:
        return "holds"
    return "does not hold" if claim.departs else "FAILS"


def _table(table: "Table") -> list[str]:
    lines = [f"{table.caption}", ""] if table.caption else []
    lines += ["| " + " | ".join(map(_cell, table.columns)) + " |", "|" + "---|" * len(table.columns)]
    lines += ["| " + " | ".join(map(_cell, row)) + " |" for row in table.rows]
    return [*lines, ""]


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        value = f"{value:.4g}"
    return str(value).replace("|", "\\|").replace("\n", " ")


def _command(paper: str, mode: str, figure: str | None = None) -> str:
    wish = "" if figure is None else f" --figure {figure.removeprefix('figure ').replace(' ', '')}"
    return f"vicinal papers {paper}{wish} --{mode}" + (" --data DIR" if mode != "quick" else "")


def _machines(outcomes: list[Outcome]) -> str:
    """Return where the units were measured, which need not be where the page is written."""
    found = {
        f"{about['cores']} cores ({about['system']}, {about['processor']}; NumPy {about['numpy']}, scikit-learn {about['scikit-learn']})"
        for about in (outcome.machine for outcome in outcomes)
        if about
    }
    return "; ".join(sorted(found)) or "no machine: nothing was measured"


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 1 else "under 1 s"
    return f"{seconds / 60:.0f} min"
