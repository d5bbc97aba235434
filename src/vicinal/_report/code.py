"""The Python code that reproduces a report's figures, generated from the settings of the comparison."""

from typing import Any

from vicinal._compare.results import Comparison


def reproducing_code(comparison: Comparison, loading: str | None) -> str:
    """Return a script that reproduces the verdict, and fits the best learned metric and density.

    Parameters
    ----------
    comparison : Comparison
    loading : str or None
        Code that makes X and y.
    """
    rows = "X" if comparison.task is None else "X, y"
    settings = {name: value for name, value in comparison.settings.items() if name != "metrics" or rows == "X, y"}
    own = any(isinstance(settings.get(name), dict) for name in ("metrics", "densities"))
    lines = [
        "import vicinal",
        *(["from vicinal import Engine"] if "engine" in settings else []),
        *(["# import or define your own estimators here"] if own else []),
        "",
        loading or ("# X: the table of features" + ("" if rows == "X" else ", y: the target")),
        "",
        "# the figures of this report",
        "comparison = vicinal.compare(",
        f"    {rows},",
        *(f"    {name}={_on_one_line(value)}," for name, value in settings.items()),
        ")",
        "print(comparison)",
    ]
    for kind, fit in (("metric", f"fit({rows})"), ("density", "fit(X)")):
        name = comparison.best[kind]
        if name is not None:
            estimator = _on_one_line(comparison.estimator(kind, name))
            lines += ["", f"# the best learned {kind}: {estimator}", *_remarks(comparison, kind, name)]
            lines.append(f"{kind} = comparison.estimator({kind!r}, {name!r}).{fit}")
    return "\n".join(lines) + "\n"


def _remarks(comparison: Comparison, kind: str, name: str) -> list[str]:
    """Return comments on how the fits in the comparison differ from a fit to all rows."""
    result, settings = comparison.result(kind, name), comparison.settings
    remarks = [f"# (in the comparison it {' '.join(result.note.split())})"] if result.note else []
    n_train = comparison.n_rows - comparison.n_rows // settings["n_splits"]  # of the largest training fold
    if (kind == "density" or comparison.methods[kind][name].costly) and n_train > settings["fit_rows"]:
        remarks.append(f"# (the comparison fitted it to {settings['fit_rows']:,} of the training rows of each fold)")
    return remarks


def _on_one_line(value: Any) -> str:
    return " ".join(repr(value).split())
