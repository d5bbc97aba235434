"""`vicinal demo`: comparisons on built-in data that take less than a minute."""

import os
from argparse import Namespace
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from vicinal._engine import Engine
from vicinal.cli.compare import run
from vicinal.cli.console import Console
from vicinal.cli.errors import OUTPUT, Failure, need
from vicinal.cli.models import make_engine
from vicinal.cli.outputs import output_file, write_json, write_lines, write_text
from vicinal.cli.parser import DEMO_FILES
from vicinal.cli.paths import check_writable

if TYPE_CHECKING:
    from vicinal._compare.results import Comparison


_DENSITIES = ["parzen-scott", "parzen-loo", "lca"]
_LOADING = """\
import pandas as pd
from vicinal.datasets import make_machine_states

readings, y = make_machine_states(random_state=0)
X = pd.DataFrame(readings, columns=[f"sensor {i}" for i in range(1, 9)])"""


def demo(arguments: Namespace, console: Console) -> None:
    """Run the command."""
    need("matplotlib", "the picture of the demonstration")
    if not os.path.isdir(arguments.folder):
        raise Failure(OUTPUT, f"--folder {arguments.folder}: there is no such folder.")
    files = {name.rpartition(".")[2]: os.path.join(arguments.folder, name) for name in DEMO_FILES}
    for path in files.values():
        check_writable(path)
    engine = make_engine(arguments)
    console.say("vicinal demo: three comparisons on built-in data; no network is used.")
    bars = _densities(arguments, console, engine, files["png"])
    machine = _report(arguments, console, engine, files["html"])
    wine = _wine(arguments, console, engine)
    if arguments.json:
        write_json({"bars": bars.to_dict(), "machine": machine.to_dict(), "wine": wine.to_dict(), "files": files})
        return
    write_lines(
        "\n".join(
            [
                "1. Densities: slanted bars",
                "",
                density_words(bars),
                "",
                f"Picture: {files['png']}",
                "",
                "2. Metrics and densities: eight sensors on a machine in four states, under a drift that they share",
                "",
                str(machine),
                "",
                f"Report: {files['html']} (open it in a browser)",
                "",
                "3. Metrics on real data: 178 wines of three growers, 13 measurements",
                "",
                wine.verdict,
            ]
        )
    )


def _densities(arguments: Namespace, console: Console, engine: Engine, path: str) -> "Comparison":
    from vicinal.datasets import make_slanted_bars

    X, _ = make_slanted_bars(random_state=arguments.seed)
    comparison = run(X, None, console, arguments, engine=engine, densities=_DENSITIES, fast=True)
    fitted = [comparison.estimator("density", name).fit(X) for name in _DENSITIES]
    titles = [
        f"{name}\nheld-out log-likelihood {comparison.result('density', key).main.mean:.2f}"
        for name, key in zip(
            ("Scott's rule", "one width, leave-one-out", "LCA: full covariance, learned"), _DENSITIES, strict=True
        )
    ]
    with output_file(path) as file:
        draw_densities(X, fitted, titles, file)
    console.say(f"wrote {path}.")
    return comparison


def density_words(comparison: "Comparison") -> str:
    """Return the held-out log-likelihoods in words and numbers."""
    scott, loo, lca = (comparison.result("density", name) for name in _DENSITIES)
    gain = lca.difference
    lines = [
        f"{comparison.n_rows} rows along thin, slanted bars. Held-out log-likelihood, in nats per row (higher is better):",
        "",
        f"  Parzen windows, Scott's rule                  {scott.main.mean:6.2f}",
        f"  Parzen windows, one leave-one-out width       {loo.main.mean:6.2f}",
        f"  LCA, full covariance learned from neighbours  {lca.main.mean:6.2f}",
        "",
    ]
    if gain.low > 0:
        lines.append(
            f"The density of LCA at an unseen row is {np.exp(gain.mean):.1f} times that of the best other method: "
            f"{gain.mean:+.2f} nats\n(95 % interval {gain.low:+.2f} to {gain.high:+.2f}). It learned a thin, slanted kernel, which the other methods cannot represent."
        )
    else:
        lines.append(f"{comparison.verdict}")
    return "\n".join(lines)


def _report(arguments: Namespace, console: Console, engine: Engine, path: str) -> "Comparison":
    import pandas as pd

    import vicinal
    from vicinal.datasets import make_machine_states

    readings, y = make_machine_states(random_state=0)
    X = pd.DataFrame(readings, columns=[f"sensor {i}" for i in range(1, 9)])
    comparison = run(X, y, console, arguments, engine=engine, fast=True, n_splits=3)
    report = vicinal.report(
        X,
        y,
        comparison=comparison,
        title="vicinal demo: what state is the machine in?",
        notes=[
            "Generated data: 600 readings of eight sensors on a machine with four states. A drift that the sensors share moves the "
            "readings far more than the states do, and each state occurs at two places on opposite sides."
        ],
        loading=_LOADING,
        engine=engine,
    )
    arguments.check_interrupted()
    write_text(path, report.html())
    console.say(f"wrote {path}.")
    return comparison


def _wine(arguments: Namespace, console: Console, engine: Engine) -> "Comparison":
    from sklearn.datasets import load_wine

    X, y = load_wine(return_X_y=True)
    return run(X, y, console, arguments, engine=engine, densities=[], fast=True)


def draw_densities(X: np.ndarray, densities: Sequence[Any], titles: Sequence[str], file: IO[bytes]) -> None:
    """Write a PNG with the rows and the contours of each density side by side."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from vicinal.plot import plot_density

    figure = Figure(figsize=(4.8 * len(densities), 4.6), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    for place, (density, title) in enumerate(zip(densities, titles, strict=True)):
        axes = plot_density(density, X, ax=figure.add_subplot(1, len(densities), place + 1), resolution=240)
        axes.set_aspect("equal")
        axes.set_title(title, fontsize=11)
    figure.savefig(file, format="png", bbox_inches="tight")
