"""The page of a paper, in Markdown: its numbers and claims beside ours, from stored results."""

from papers.contents import contents
from papers.experiment import PAPERS, Claim, Experiment, Setting, Summary, Table, experiments
from papers.results import Results, read


def page(paper: str) -> str:
    """Return the page of one paper."""
    setting = Setting(full=True)
    sections, rows, counts, machines = [], [], {}, set()
    for experiment in experiments(paper):
        results = read(experiment)
        summary = experiment.module.summarise(setting, results.records)
        counts[experiment.name] = f"{sum(claim.holds for claim in summary.claims)} of {len(summary.claims)}"
        rows.append(f"| {experiment.title} | {counts[experiment.name]} | {_duration(results.seconds)} |")
        sections += _section(experiment, summary, results)
        machines.add(
            "{cores} cores ({system}, {processor}; NumPy {numpy}, scikit-learn {scikit-learn})".format_map(
                results.machine
            )
        )
    lines = [
        f"# {PAPERS[paper][1]}",
        "",
        f"This page was written by `python papers/run.py {paper} --full` on {'; '.join(sorted(machines))}.",
        "",
        "Times are sums over the units of an experiment, several of which can run at the same time (`--jobs N`).",
        "",
        "| | claims that hold | time of one core |",
        "|---|---|---|",
        *rows,
        "",
        *sections,
        *contents(paper, counts),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _section(experiment: Experiment, summary: Summary, results: Results) -> list[str]:
    code = f"papers/{PAPERS[experiment.paper][0]}/{experiment.name}.py"
    lines = [f"## {experiment.title}", "", experiment.about, ""]
    lines += [f"`{experiment.command}` ({_duration(results.seconds)}; code: `{code}`)", ""]
    for table in summary.tables:
        lines += _table(table)
    if summary.claims:
        lines += ["| claim | here | evidence |", "|---|---|---|"]
        lines += [f"| {_cell(c.says)} | {verdict(c)} | {_cell(c.evidence)} |" for c in summary.claims]
        lines.append("")
    for claim in summary.claims:
        if not claim.holds and claim.departs:
            lines += [f"*Does not hold:* {claim.says}. {claim.departs}", ""]
    for remark in summary.remarks:
        lines += [remark, ""]
    for picture in results.pictures:
        lines += [f"![{_cell(experiment.title)}]({experiment.paper}-{picture}.png)", ""]
    return lines


def verdict(claim: Claim) -> str:
    """Return whether a claim holds, in words."""
    if claim.holds:
        return "holds"
    return "does not hold" if claim.departs else "FAILS"


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


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 1 else "under 1 s"
    return f"{seconds / 60:.0f} min"
