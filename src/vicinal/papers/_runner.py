"""Running experiments: unit by unit, cached, with progress; then the pictures and the page."""

import time
from dataclasses import dataclass, field
from pathlib import Path

from vicinal.papers._experiment import Experiment, Missing, Setting, Summary
from vicinal.papers._results import Results, code_of, written


@dataclass(frozen=True)
class Outcome:
    """What became of an experiment: a summary with its pictures, or the reason why it was skipped."""

    experiment: Experiment
    setting: Setting
    skipped: str = ""
    summary: Summary | None = None
    seconds: float = 0.0
    machine: dict = field(default_factory=dict)
    pictures: tuple[str, ...] = ()


def run(experiment: Experiment, setting: Setting, folder: Path, *, fresh=False, progress=None, check=None) -> Outcome:
    """Measure what is not measured yet, summarise and draw.

    Parameters
    ----------
    experiment, setting
        What to run and how much of it.
    folder : Path
        Where results and pictures go.
    fresh : bool
        Measure everything anew.
    progress : callable, optional
        Called with ``(done, total, text)``.
    check : callable, optional
        Called between units; may raise to stop.
    """
    stem = f"{experiment.name}-{setting.mode}"
    results = Results(folder / "results" / experiment.paper / f"{stem}.json", code_of(experiment.module))
    if fresh:
        results.measured.clear()
    try:
        units = experiment.module.units(setting)
        missing = experiment.missing(setting, drawing_only=all(map(results.has, units)))
        if missing:
            return Outcome(experiment, setting, skipped=missing)
        for done, unit in enumerate(units):
            if progress:
                progress(done, len(units), f"{experiment.paper}, {experiment.title.partition(':')[0]}: {_words(unit)}")
            if not results.has(unit):
                start = time.perf_counter()
                result = experiment.module.measure(setting, **unit)
                results.add(unit, result, time.perf_counter() - start)
            if check:
                check()
        if progress:
            progress(len(units), len(units), f"{experiment.paper}, {experiment.title.partition(':')[0]}: measured")
        records = results.records(units)
        pictures = _save_pictures(experiment, setting, records, folder)
        summary = experiment.module.summarise(setting, records)
    except Missing as error:  # also when all is measured: some pictures show the data themselves
        return Outcome(experiment, setting, skipped=str(error))
    return Outcome(experiment, setting, "", summary, results.seconds(units), results.machine, pictures)


def _save_pictures(experiment, setting, records, folder):
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


def _words(unit: dict) -> str:
    return ", ".join(f"{key}={value}" for key, value in unit.items()) or "all"
