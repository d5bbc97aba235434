"""A comparison in words: the verdict, and a table for the terminal."""

from typing import TYPE_CHECKING, Any

from vicinal._tables import describe_types
from vicinal._words import percent

if TYPE_CHECKING:
    from vicinal._compare.intervals import Interval
    from vicinal._compare.results import Comparison, MethodResult


_NOTHING = "There is no verdict, because no learned method, or no plain method to compare it with, could be fitted."
_SHORT = {"helped": "helps", "unclear": "does not clearly help", "hurt": "does not help"}
_WIDEST = 72  # characters of the last column of a table
_AFTER_ANOTHER = {**_SHORT, "unclear": "does not clearly"}  # after a sentence that already contains "help"


def headline(helped: dict[str, Any]) -> str:
    """Return the verdict in one short sentence without figures."""
    judged = [(kind, helped[kind]) for kind in ("metric", "density") if helped[kind] is not None]
    if not judged:
        return _NOTHING
    if len(judged) == 1:
        kind, state = judged[0]
        return f"A learned {kind} {_SHORT[state]} here."
    (_, first), (_, second) = judged
    if first == second:
        return {
            "helped": "A learned metric helps here, and so does a learned density.",
            "unclear": "Neither a learned metric nor a learned density clearly helps here.",
            "hurt": "Neither a learned metric nor a learned density helps here.",
        }[first]
    return f"A learned metric {_SHORT[first]} here; a learned density {_AFTER_ANOTHER[second]}."


def verdict(comparison: "Comparison") -> str:
    """Return the verdict as one string, with the columns that densities and LCA do not use."""
    sentences = " ".join(verdict_sentences(comparison).values()) or _NOTHING
    return " ".join([sentences, *left_out_sentences(comparison)])


def verdict_sentences(comparison: "Comparison") -> dict[str, str]:
    """Return the verdict by kind: a sentence or two for metrics, and for densities."""
    sentences = {}
    for kind, results in (("metric", comparison.metrics), ("density", comparison.densities)):
        reasons = dict.fromkeys(result.not_judged for result in results if result.not_judged)
        if comparison.helped[kind] is None and reasons:
            sentences[kind] = f"No learned {kind} is judged: {'; '.join(reasons)}."
        if comparison.helped[kind] is not None:
            sentences[kind] = _sentence(kind, comparison, results)
    below = _below_the_base_rate(comparison)
    if below:
        sentences["metric"] = " ".join(text for text in (below, sentences.get("metric")) if text)
    ahead = _gaussian_ahead([result for result in comparison.densities if result.judged])
    if ahead:
        sentences["density"] = " ".join(text for text in (sentences.get("density"), ahead) if text)
    return sentences


def left_out_sentences(comparison: "Comparison") -> list[str]:
    """Return a sentence that lists the columns that densities and LCA do not use; none if they use all."""
    # 0/1 columns of categories are for metrics; densities use the categories themselves.
    left_out = describe_types(
        (name, kind)
        for name, kind in comparison.types.items()
        if not (kind.measured or kind.has_levels or kind.kind == "indicator")
    )
    text = f"Densities learn from quantities and categories and do not use these columns: {left_out}."
    return [text] if left_out else []


def _below_the_base_rate(comparison: "Comparison") -> str | None:
    """Return a sentence if no metric predicts the target better than a constant."""
    scored = (result for result in comparison.metrics if result.main)
    best, largest_class = max(scored, key=lambda result: result.main.mean, default=None), comparison.largest_class
    if best is None or best.main.mean > (largest_class or 0.0):
        return None
    constant = "its mean (an R² of 0)" if largest_class is None else f"its largest class ({percent(largest_class)})"
    return (
        f"No metric predicts the target better than {constant}: the best, {best.label}, has a held-out "
        f"{score_name(best.scale, comparison.n_neighbors)} of {shown(best.scale, best.main.mean)}."
    )


def _gaussian_ahead(results: "list[MethodResult]") -> str | None:
    """Return a sentence if one Gaussian scores better than all kernel densities (LCA-Gauss contains it and is excluded)."""
    gaussian = next((result for result in results if result.name == "gaussian"), None)
    kernels = [result for result in results if result.name not in ("gaussian", "lca-gauss", "independent")]
    best = max(kernels, key=lambda result: result.main.mean, default=None)
    if gaussian is None or best is None or best.main.mean >= gaussian.main.mean:
        return None
    return (
        f"One Gaussian scores better than all kernel densities here: it has {shown('density', gaussian.main.mean)} nats per row, and the best of "
        f"them, {best.label}, has {shown('density', best.main.mean)}."
    )


def _sentence(kind: str, comparison: "Comparison", results: "list[MethodResult]") -> str:
    helped = comparison.helped[kind]
    plain: MethodResult = comparison.result(kind, comparison.reference[kind])
    learned: MethodResult = comparison.result(kind, comparison.best[kind])
    scale = learned.scale
    change = signed(scale, learned.difference)
    what = f"held-out {score_name(scale, comparison.n_neighbors)}"
    before, after = shown(scale, plain.main.mean), shown(scale, learned.main.mean)
    after += " nats per row" if kind == "density" else ""
    plainest = next((result for result in results if result.name == "euclidean" and result.failure is None), None)
    raw = "" if plainest in (None, plain) else f"; raw Euclidean distance has {shown(scale, plainest.main.mean)}"
    if helped == "helped":
        higher = max((result for result in results if result.learned and result.judged), key=lambda r: r.main.mean)
        more = shown(scale, higher.main.mean)
        less_sure = (
            "" if higher is learned else f"; {higher.label} scores higher on average, {more}, but with a wider interval"
        )
        return (
            f"{learned.label} helped: {what} rose from {before} ({plain.label}, the best plain {kind}) to {after}, "
            f"{change}{less_sure}{raw}."
        )
    several = sum(result.learned and result.judged for result in results) > 1
    if several:
        nothing, best = f"No learned {kind}", f"the best, {learned.label}, has"
        clearly, plainly = "clearly helped", "helped"
    else:
        nothing, best = f"{learned.label} did not", "it has"
        clearly, plainly = "clearly help", "help"
    compared = f"{best} {'an' if what[0] in 'aeiou' else 'a'} {what} of {after}, compared with {before} for plain {plain.label}, a difference of {change}"
    if helped == "hurt":
        alone = "Densities of single columns describe these rows better than a density of all columns together."
        advice = alone if plain.name == "independent" else f"Use {plain.label}."
        return f"{nothing} {plainly}: {compared}{raw}. {advice}"
    if learned.difference.low > 0:  # although it is clearly better, a constant prediction is better still
        return f"{nothing} {plainly}: {compared}{raw}."
    if learned.promising:
        n_folds = len(next(iter(learned.scores.values())))
        helps = f"a learned {kind} helps" if several else f"{learned.label} helps"
        return f"{n_folds} folds are too few to tell whether {helps}: {compared}, which includes zero{raw}."
    return f"{nothing} {clearly}: {compared}, which includes zero{raw}."


def score_name(scale: str, n_neighbors: int) -> str:
    """Return the name of the score that determines the verdict."""
    return {
        "metric": f"{n_neighbors}-nearest-neighbour accuracy",
        "r2": f"{n_neighbors}-nearest-neighbour R²",
        "density": "log-likelihood",
    }[scale]


def shown(scale: str, value: float) -> str:
    """Return a main score: a share as a percentage, an R² to three digits, nats to two."""
    return percent(value) if scale == "metric" else f"{value:.{3 if scale == 'r2' else 2}f}"


def signed(scale: str, interval: "Interval", *, named: bool = True) -> str:
    """Return a difference with its interval, in percentage points, points of R², or nats; `named` adds the level."""
    factor, digits, unit = {"metric": (100, 1, " points"), "r2": (1, 3, ""), "density": (1, 2, " nats")}[scale]
    mean, low, high = (factor * value for value in interval)
    # An end that is not zero must not be printed as zero, because its sign determines the verdict.
    while digits < 4 and any(value and abs(value) < 0.5 * 10.0**-digits for value in (low, high)):
        digits += 1
    name = "95 % interval " if named else ""
    return f"{mean:+.{digits}f}{unit} ({name}{low:+.{digits}f} to {high:+.{digits}f})"


def range_text(scale: str, low: float, high: float) -> str:
    """Return an interval of a main score, cut off where no score can be; shares are percentages."""
    if scale == "metric":
        return f"{100 * max(low, 0):.1f} to {100 * min(high, 1):.1f}"
    return f"{low:.3f} to {min(high, 1):.3f}" if scale == "r2" else f"{low:.2f} to {high:.2f}"


def comparison_table(comparison: "Comparison", next_step: str | None = None) -> str:
    """Return the verdict, the next step, the tables and the notes, as text."""
    parts = [comparison.verdict, f"Next: {next_step or comparison.next_step}"]
    parts += [_table(head, lines) for head, lines in result_tables(comparison)]
    return "\n\n".join([*parts, "\n".join(["* learned", *comparison_notes(comparison)])])


def comparison_notes(comparison: "Comparison") -> list[str]:
    """Return sentences below the tables: the numbers of rows and folds, the notes, and what is to be said of single methods."""
    first = f"{comparison.n_rows:,} rows, {comparison.n_features:,} columns, {comparison.n_folds} folds."
    if comparison.largest_class is not None:
        first += f" Always predicting the largest of {len(comparison.classes)} classes has an accuracy of {percent(comparison.largest_class)}."
    results = [*comparison.metrics, *comparison.densities]
    remarks = [f"{result.label}: {result.note}." for result in results if result.note]
    # Reasons that are too long for the last column of the tables.
    reasons = [(result.label, result.failure or result.not_judged or "") for result in results]
    remarks += [f"{label}: {reason}." for label, reason in reasons if len(f"not judged: {reason}") > _WIDEST]
    return [first, *comparison.notes, *dict.fromkeys(remarks)]


def result_tables(comparison: "Comparison") -> list[tuple[list[str], list[list[str]]]]:
    """Return a table of metrics and one of densities: the headings and the cells of each line, as text."""
    numbers = comparison.task == "numbers"
    tables = []
    for kind, results in (("metric", comparison.metrics), ("density", comparison.densities)):
        others: tuple[str, ...] = () if kind == "density" else ("mean_error",) if numbers else ("recall@1", "purity")
        score = (
            "log-likelihood" if kind == "density" else f"{comparison.n_neighbors}-NN {'R²' if numbers else 'accuracy'}"
        )
        names = [name.replace("_", " ") for name in others]
        head = [kind, score, "95 % interval", *names, "difference from the best plain"]
        if results:
            tables.append((head, [_cells(result, others, comparison) for result in results]))
    return tables


def _cells(result: "MethodResult", others: tuple[str, ...], comparison: "Comparison") -> list[str]:
    name = ("* " if result.learned else "  ") + result.label
    if result.failure:
        return [name, "-", "", *[""] * len(others), result.failure]
    means = {other: result.intervals[other].mean for other in others}
    values = [f"{mean:.4g}" if other == "mean_error" else percent(mean) for other, mean in means.items()]
    interval = range_text(result.scale, result.main.low, result.main.high)
    return [name, shown(result.scale, result.main.mean), interval, *values, difference_text(result, comparison)]


def difference_text(result: "MethodResult", comparison: "Comparison") -> str:
    """Return how a method differs from the best plain one, or why it is not judged."""
    if result.not_judged:
        return f"not judged: {result.not_judged}"
    if result.name == comparison.reference[result.kind] and not result.learned:
        return "(the best plain one)"
    if result.difference is None:
        return ""
    text = signed(result.scale, result.difference, named=False)
    clear = " better" if result.difference.low > 0 else " worse" if result.difference.high < 0 else ""
    return text + clear


def _table(head: list[str], lines: list[list[str]]) -> str:
    """Return columns aligned with spaces; only the last one may be long, and is truncated."""
    lines = [[*line[:-1], line[-1] if len(line[-1]) <= _WIDEST else line[-1][: _WIDEST - 3] + "..."] for line in lines]
    widths = [max(len(row[i]) for row in [head, *lines]) for i in range(len(head))]
    rule = ["-" * width for width in widths]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [head, rule, *lines]
    )
