"""Running experiments: unit by unit, with a cache, optionally in several processes; then the pictures and the page."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vicinal.papers._experiment import Experiment, Missing, Setting, Summary
from vicinal.papers._parallel import as_they_come
from vicinal.papers._results import Results, code_of, written

if TYPE_CHECKING:
    from vicinal.papers._experiment import Records


@dataclass(frozen=True)
class Outcome:
    """The outcome of an experiment: a summary with its pictures, or the reason why it was skipped."""

    experiment: Experiment
    setting: Setting
    skipped: str = ""
    summary: Summary | None = None
    seconds: float = 0.0
    machine: dict = field(default_factory=dict)
    pictures: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Task:
    """One unit of one experiment."""

    experiment: Experiment
    unit: dict


def run(experiment: Experiment, setting: Setting, folder: Path, **options: Any) -> Outcome:
    """Measure what is not measured yet (`options` as for `measure`), summarise and draw."""
    skipped = measure([experiment], setting, folder, **options)
    return report(experiment, setting, folder, skipped.get(experiment.source, ""))


def measure(
    chosen: list[Experiment],
    setting: Setting,
    folder: Path,
    *,
    fresh: bool = False,
    jobs: int = 1,
    minutes: float | None = None,
    drawing: bool = True,
    progress: Callable[[int, int, str], None] | None = None,
    check: Callable[[], None] | None = None,
) -> dict[str, str]:
    """Measure the units that have not been measured, and save each as soon as it is finished.

    Parameters
    ----------
    chosen, setting
        The experiments and the amount of work.
    folder : Path
        The folder for results.
    fresh : bool
        Whether to repeat all measurements.
    jobs : int
        The number of processes at a time.
    minutes : float, optional
        Start no unit after so many minutes; the next call continues.
    drawing : bool
        Whether pictures will be drawn; without matplotlib an experiment is then skipped before it is measured.
    progress : callable, optional
        Called with ``(done, total, text)``.
    check : callable, optional
        Called between units; may raise to stop.

    Returns
    -------
    dict
        By the source of an experiment, why it was skipped.
    """
    skipped: dict[str, str] = {}
    stores: dict[str, Results] = {}
    tasks: list[_Task] = []
    for experiment in chosen:
        results, units = _stored(experiment, setting, folder), []
        if fresh:
            results.measured.clear()
        try:
            units = [unit for unit in experiment.units(setting) if not results.has(unit)]
            reason = experiment.missing(setting, measuring=bool(units), drawing=drawing)
        except Missing as error:
            reason = str(error)
        if reason:
            skipped[experiment.source] = reason
            continue
        stores[experiment.source] = results
        tasks += [_Task(experiment, unit) for unit in units]
    if jobs > 1:  # the longest units first, so that none is left over at the end
        tasks.sort(key=lambda task: -task.experiment.minutes(setting) / len(task.experiment.units(setting)))
    end = time.monotonic() + 60 * (float("inf") if minutes is None else minutes)
    wanted = (task for task in tasks if task.experiment.source not in skipped)
    measured = _measured(setting, wanted, jobs, lambda: time.monotonic() < end)
    if progress and tasks:
        progress(0, len(tasks), f"{tasks[0].experiment.paper}: {_words(tasks[0])}")
    for done, (task, (result, seconds, missing)) in enumerate(measured, 1):
        if missing:
            skipped[task.experiment.source] = missing
        else:
            stores[task.experiment.source].add(task.unit, result, seconds)
        if progress:
            progress(done, len(tasks), f"{task.experiment.paper}: {_words(task)}")
        if check:
            check()
    return skipped


def _measured(
    setting: Setting, tasks: Iterator[_Task], jobs: int, go_on: Callable[[], bool]
) -> Iterator[tuple[_Task, tuple[dict, float, str]]]:
    """Return each task with its result, its seconds and what was missing; begins none after `go_on` has said no."""
    work = partial(_timed, setting)
    if jobs > 1:
        return as_they_come(work, tasks, jobs, go_on)
    return ((task, work(task)) for task in takewhile(lambda _: go_on(), tasks))


def _timed(setting: Setting, task: _Task) -> tuple[dict, float, str]:
    start = time.perf_counter()
    try:
        return task.experiment.module.measure(setting, **task.unit), time.perf_counter() - start, ""
    except Missing as error:
        return {}, 0.0, str(error)


def report(experiment: Experiment, setting: Setting, folder: Path, skipped: str = "") -> Outcome:
    """Summarise what has been measured, and draw it.

    Parameters
    ----------
    experiment, setting, folder
        As for `measure`.
    skipped : str
        Why it was not measured, if it was not.
    """
    if skipped:
        return Outcome(experiment, setting, skipped=skipped)
    results = _stored(experiment, setting, folder)
    try:
        units = experiment.units(setting)
        missing = unmeasured(experiment, setting, folder) or experiment.missing(setting, measuring=False)
        if missing:
            return Outcome(experiment, setting, skipped=missing)
        records = results.records(units)
        pictures = _save_pictures(experiment, setting, records, folder)
        summary = experiment.module.summarise(setting, records)
    except Missing as error:  # also when all is measured: some pictures show the data themselves
        return Outcome(experiment, setting, skipped=str(error))
    return Outcome(experiment, setting, "", summary, results.seconds(units), results.machine, pictures)


def unmeasured(experiment: Experiment, setting: Setting, folder: Path) -> str:
    """Return how much is not measured yet, and how to go on; empty when nothing is left."""
    results, units = _stored(experiment, setting, folder), experiment.units(setting)
    left = sum(not results.has(unit) for unit in units)
    return (
        f"{left} of {len(units)} units have not been measured. Run the same command again to continue." if left else ""
    )


def _stored(experiment: Experiment, setting: Setting, folder: Path) -> Results:
    path = folder / "results" / experiment.paper / f"{experiment.name}-{setting.mode}.json"
    return Results(path, code_of(experiment.module))


def _save_pictures(experiment: Experiment, setting: Setting, records: "Records", folder: Path) -> tuple[str, ...]:
    from matplotlib import pyplot as plt

    from vicinal.papers._drawing import style

    names = []
    with style():
        figures = experiment.module.draw(setting, records)
    for name, figure in figures.items():
        names.append(f"{experiment.paper}-{name}.png" if setting.full else f"{experiment.paper}-{name}-quick.png")
        with written(folder / names[-1]) as file:
            figure.savefig(file, format="png", dpi=100)
        plt.close(figure)
    return tuple(names)


def _words(task: _Task) -> str:
    unit = ", ".join(f"{key}={value}" for key, value in task.unit.items()) or "all"
    return f"{task.experiment.title.partition(':')[0]}: {unit}"
