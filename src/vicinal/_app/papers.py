"""`vicinal papers`: the tables and figures of the four papers."""

import os
from argparse import Namespace
from pathlib import Path

from vicinal._app.console import Console, count
from vicinal._app.errors import CLAIM, DataFailure, Failure, OutputFailure, UsageFailure
from vicinal._app.outputs import write_json, write_lines, write_text
from vicinal._app.paths import keep_apart
from vicinal._engine import available_threads
from vicinal.papers import (
    PAPERS,
    CannotWrite,
    Experiment,
    Outcome,
    Setting,
    data_folder,
    experiments,
    measure,
    page,
    report,
    text,
    unmeasured,
)


def papers(arguments: Namespace, console: Console) -> None:
    """Run the command."""
    chosen = _choose(arguments.paper, arguments.figure)
    if arguments.list:
        write_lines("\n".join(map(_listed, chosen)))
        return
    try:
        # Quick mode needs no data, so a missing folder in the environment variable does not matter.
        arguments.full = arguments.full or arguments.reduced
        data_home = data_folder(arguments.data) if arguments.full or arguments.data else None
        setting = Setting(arguments.full, arguments.reduced, data_home, arguments.device)
    except NotADirectoryError as error:
        raise DataFailure(str(error)) from error
    if data_home is not None:  # --data has been checked, but not the folder in the environment variable
        keep_apart([("VICINAL_DATA", data_home)], [("-o", arguments.output)])
    folder = Path(arguments.output)
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise UsageFailure(f"--output {folder}: cannot be made a folder ({error.strerror or error}).") from error
    outcomes = []
    jobs = arguments.jobs or (1 if arguments.figure else available_threads())
    try:
        skipped = measure(
            chosen, setting, folder, fresh=arguments.fresh, jobs=jobs, minutes=arguments.minutes,
            drawing=not arguments.measure, progress=console.progress, check=arguments.check_interrupted,
        )  # fmt: skip
        if arguments.measure:
            left = {e.source: skipped.get(e.source) or unmeasured(e, setting, folder) for e in chosen}
            write_lines(_measured(chosen, {source: reason for source, reason in left.items() if reason}))
            return
        for experiment in chosen:
            outcome = report(experiment, setting, folder, skipped.get(experiment.source, ""))
            if setting.reduced and outcome.summary is None:  # a partial result is shown, and the page says so
                quick = report(experiment, Setting(), folder)
                outcome = quick if quick.summary else outcome
            outcomes.append(outcome)
            for line in text(outcome).splitlines():
                console.say(line)
            for picture in outcome.pictures:
                console.say(f"  wrote {folder / picture}.")
    except CannotWrite as error:
        raise OutputFailure(str(error)) from error
    if arguments.figure is None:  # a page shows a whole paper
        for paper in dict.fromkeys(experiment.paper for experiment in chosen):
            own = [outcome for outcome in outcomes if outcome.experiment.paper == paper]
            name = PAPERS[paper][0] + ("" if setting.full else "-quick") + ".md"
            write_text(str(folder / name), page(paper, own))
            console.say(f"wrote {folder / name}.")
    _finish(outcomes, arguments)


def _listed(experiment: Experiment) -> str:
    """Return a line of ``--list``: names, heading, minutes on one core."""
    quick, full = experiment.module.MINUTES
    minutes = f"quick {quick:g} min, full {full:g} min of one core"
    return f"{experiment.paper:8} {experiment.module.COVERS[0]:14} {experiment.title} ({minutes})"


def _measured(chosen: list[Experiment], left: dict[str, str]) -> str:
    """Return what ``--measure`` says at the end."""
    done = f"{len(chosen) - len(left)} of {count(len(chosen), 'experiment')} measured"
    return "\n".join([f"{done}.", *(f"{source}: {reason}" for source, reason in left.items())])


def _choose(paper: str | None, figure: str | None) -> list[Experiment]:
    found = [experiment for name in ([paper] if paper else PAPERS) for experiment in experiments(name)]
    if figure is None:
        return found
    wishes = figure.split(",")
    chosen = [experiment for experiment in found if any(map(experiment.answers_to, wishes))]
    unknown = [wish for wish in wishes if not any(experiment.answers_to(wish) for experiment in found)]
    if unknown:
        covers = {name: [cover for e in found if e.paper == name for cover in e.module.COVERS] for name in PAPERS}
        known = "; ".join(f"{name}: {', '.join(own)}" for name, own in covers.items() if own)
        raise UsageFailure(f"--figure {','.join(unknown)}: there is no such table or figure. There are {known}.")
    return chosen


def _finish(outcomes: list[Outcome], arguments: Namespace) -> None:
    claims = [claim for outcome in outcomes if outcome.summary for claim in outcome.summary.claims]
    failed = [claim for claim in claims if claim.fails]
    skipped = [outcome for outcome in outcomes if outcome.summary is None]
    if arguments.json:
        write_json(
            [
                {
                    "paper": outcome.experiment.paper,
                    "name": outcome.experiment.name,
                    "title": outcome.experiment.title,
                    "mode": outcome.setting.mode,
                    "skipped": outcome.skipped,
                    "seconds": outcome.seconds,
                    "pictures": list(outcome.pictures),
                    "claims": [
                        {"says": c.says, "holds": bool(c.holds), "evidence": c.evidence, "departs": c.departs}
                        for c in (outcome.summary.claims if outcome.summary else [])
                    ],
                }
                for outcome in outcomes
            ]
        )
    else:
        held = sum(claim.holds for claim in claims)
        known = len(claims) - held - len(failed)
        words = [f"{held} of {count(len(claims), 'claim')} of the papers hold"]
        words += [f"{known} {'is' if known == 1 else 'are'} known not to hold, with an explanation"] if known else []
        left_out = f"{len(skipped)} of {count(len(outcomes), 'experiment')} skipped" if skipped else ""
        words += [left_out] if skipped else []
        write_lines("; ".join(words) + "." if claims else f"nothing was run: {left_out}.")
    if failed:
        raise Failure(
            f"{count(len(failed), 'claim')} failed: " + "; ".join(claim.says for claim in failed) + ".", CLAIM
        )
