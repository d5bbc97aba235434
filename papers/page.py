"""The page of a paper, in Markdown: its numbers and claims beside ours, from stored results."""

from typing import NamedTuple

from papers.contents import contents
from papers.experiment import GRIDS, PAPERS, Claim, Experiment, Setting, Summary, Table, experiments
from papers.results import Results, read


class ByGrid(NamedTuple):
    """A claim judged on the whole of every stored grid, and on either half of it."""

    claims: dict[str, Claim]

    @property
    def depends(self) -> bool:
        """Whether the evidence or the verdict depends on a grid."""
        return len({(claim.holds, claim.evidence) for claim in self.claims.values()}) > 1

    @property
    def changes(self) -> bool:
        """Whether the verdict does."""
        return len({claim.holds for claim in self.claims.values()}) > 1


def verdicts_by_grid(experiment: Experiment) -> list[ByGrid]:
    """Return the claims of an experiment, judged by each part of the grids whose scores are stored."""
    records = read(experiment).records
    summaries = [experiment.module.summarise(Setting(full=True, grid=grid), records) for grid in GRIDS]
    rows = zip(*(summary.claims for summary in summaries), strict=True)
    return [ByGrid(dict(zip(GRIDS, claims, strict=True))) for claims in rows]


def page(paper: str) -> str:
    """Return the page of one paper."""
    setting = Setting(full=True)
    sections, rows, claims, machines, by_grid = [], [], {}, set(), []
    for experiment in experiments(paper):
        results = read(experiment)
        if not results.units:
            rows.append(f"| {experiment.title} | not measured yet | |")
            continue
        summary = experiment.module.summarise(setting, results.records)
        claims[experiment.name] = summary.claims
        holding = sum(claim.holds for claim in summary.claims)
        rows.append(f"| {experiment.title} | {holding} of {len(summary.claims)} | {_durations(results)} |")
        sections += _section(experiment, summary, results)
        machines |= {_machine(machine) for machine in results.machines}
        by_grid += verdicts_by_grid(experiment)
    lines = [
        f"# {PAPERS[paper][1]}",
        "",
        f"This page was written by `python papers/run.py {paper} --full` on {'; '.join(sorted(machines))}.",
        "",
        "Times are sums over the units of an experiment, several of which can run at the same time (`--jobs N`). A claim is a sentence of the paper "
        "with a rule by which it is judged; where it does not hold, the remarks below it say what was measured.",
        "",
        "| | claims that hold | time |",
        "|---|---|---|",
        *rows,
        "",
        *_changes(by_grid),
        *sections,
        *contents(paper, claims),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _machine(machine: dict) -> str:
    device = f" and a GPU ({machine['device']})" if machine["device"] else ""
    return f"{machine['cores']} cores{device} ({machine['system']}, {machine['processor']}; NumPy {machine['numpy']}, scikit-learn {machine['scikit-learn']})"


def _changes(rows: list[ByGrid]) -> list[str]:
    """Return the verdicts that depend on the step or the position of a grid."""
    on_grids = [row for row in rows if row.depends]
    if not on_grids:
        return []
    changed = [row for row in on_grids if row.changes]
    lines = [
        f"{len(on_grids)} of the {len(rows)} verdicts rest on parameters that are chosen from grids whose scores are stored. `python papers/run.py --check` judges them again "
        "by every second value of each grid, in both positions: compared with either half, the grid is refined by two, and the halves are half a step "
        f"apart. {'No verdict changes.' if not changed else 'These verdicts change:'}",
        "",
    ]
    if changed:
        lines += ["| claim | " + " | ".join(f"{grid} grid" for grid in GRIDS) + " |", "|" + "---|" * (1 + len(GRIDS))]
        for row in changed:
            cells = [f"{verdict(claim)}: {_cell(claim.evidence)}" for claim in row.claims.values()]
            lines.append(f"| {_cell(row.claims['whole'].says)} | " + " | ".join(cells) + " |")
        lines.append("")
    return lines


def _section(experiment: Experiment, summary: Summary, results: Results) -> list[str]:
    code = f"papers/{PAPERS[experiment.paper][0]}/{experiment.name}.py"
    lines = [f"## {experiment.title}", "", experiment.about, ""]
    lines += [f"`{experiment.command}` ({_durations(results)}; code: `{code}`)", ""]
    units = experiment.module.units(Setting(full=True))
    if len(results.units) < len(units):
        lines += [
            f"{len(results.units)} of {len(units)} units of work are measured so far; the command measures the others.",
            "",
        ]
    for table in summary.tables:
        lines += _table(table)
    if summary.claims:
        lines += ["| claim | here | evidence |", "|---|---|---|"]
        lines += [f"| {_cell(c.says)} | {verdict(c)} | {_cell(c.evidence)} |" for c in summary.claims]
        lines.append("")
    for remark in summary.remarks:
        lines += [remark, ""]
    for picture in results.pictures:
        lines += [f"![{_cell(experiment.title)}]({experiment.paper}-{picture}.png)", ""]
    return lines


def verdict(claim: Claim) -> str:
    """Return whether a claim holds, in words."""
    return "holds" if claim.holds else "does not hold"


def _table(table: Table) -> list[str]:
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


def _durations(results: Results) -> str:
    """Return the times of an experiment on one core, and on a GPU."""
    devices = sorted({machine["device"] for machine in results.machines}, key=lambda device: device or "")
    places = {device: f"with a GPU ({device})" if device else "of one core" for device in devices}
    return ", ".join(f"{_duration(results.seconds(device))} {place}" for device, place in places.items())


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 1 else "under 1 s"
    return f"{seconds / 60:.0f} min"
