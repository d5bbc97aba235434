"""Write the measured tables into README.md and docs/benchmarks.md from results/*.json; nothing is typed by hand."""

import json
import re
import statistics
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent


def results(name):
    path = HERE / "results" / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def _ours(result):
    return next(row for row in result["rows"] if row["contender"] == "vicinal")


def _ratio(result, name):
    row = next((row for row in result["rows"] if row["contender"] == name), {})
    if "times_slower" in row:
        wrong = "" if "why" not in row else f" ({_wrong(row)})"
        return f"{row['times_slower']:.1f}x{wrong}"
    why = row.get("why", "not run")
    return "not installed" if why.startswith("not installed") else _wrong(row)


def _wrong(row):
    return f"wrong by {row['error']:.0e}" if row.get("error") else row.get("why", "not run")


def speed_table(scatters):
    """Return the table of README.md: some cases of each file, beside scikit-learn and the fastest other library."""
    lines = ["| work | vicinal | scikit-learn | fastest other |", "|---|---|---|---|"]
    for result in scatters["results"]:
        case = result["case"]
        if case["kind"] == "scatter" and case["dtype"] == "float64" and case["d"] in (8, 128):
            lines.append(_speed_line(f"one step of LCA, {case['n']:,} x {case['d']}", result))
    for result in results("engine-density")["results"]:
        if result["case"]["kind"] == "density" and result["case"]["d"] in (2, 64):
            lines.append(_speed_line(f"10,000 log-densities, 100,000 x {result['case']['d']}", result))
    for result in results("nca-evaluation")["results"]:
        case, rows = result["case"], {row["contender"]: row for row in result["rows"]}
        if "scikit-learn" in rows and case["d"] == case["rank"] == 64:
            times = f"{rows['vicinal']['seconds']:.2f} s | {rows['scikit-learn']['seconds_ratio']:.1f}x"
            lines.append(f"| NCA's gradient, {case['n']:,} x 64 | {times} | |")
    return "\n".join(lines)


def _speed_line(work, result):
    others = [
        row for row in result["rows"] if "times_slower" in row and row["contender"] not in ("vicinal", "scikit-learn")
    ]
    fastest = min(others, key=lambda row: row["times_slower"])
    names = {row["contender"] for row in result["rows"]}
    peer = _ratio(result, "scikit-learn") if "scikit-learn" in names else ""
    name = {"numpy": "NumPy", "torch": "torch"}.get(fastest["contender"], fastest["contender"])
    return f"| {work} | {_ours(result)['seconds']:.2f} s | {peer} | {fastest['times_slower']:.1f}x ({name}) |"


def scatter_table(report):
    lines = [
        "| n = 10,000 | vicinal | NumPy, row tiles | torch, row tiles | pykeops | floor of the machine |",
        "|" + "---|" * 6,
    ]
    for result in report["results"]:
        case = result["case"]
        if case["kind"] != "scatter" or case.get("name") == "scaling":
            continue
        ours = _ours(result)
        cells = [_ratio(result, name) for name in ("numpy", "torch", "pykeops")]
        lines.append(
            f"| d={case['d']}, {case['dtype']} | {ours['seconds']:.3f} s | {' | '.join(cells)} "
            f"| {result['floor_seconds'] / ours['seconds']:.2f}x |"
        )
    return "\n".join(lines)


def density_table(report):
    names = ["scikit-learn", "scipy", "mlpack", "KDEpy", "torch", "pykeops"]
    lines = [
        "| 10,000 new rows, 100,000 training rows | vicinal | " + " | ".join(names) + " |",
        "|" + "---|" * (len(names) + 2),
    ]
    for result in report["results"]:
        case = result["case"]
        if case["kind"] == "density":
            ours = _ours(result)
            cells = " | ".join(_ratio(result, name) for name in names)
            lines.append(f"| d={case['d']} | {ours['seconds']:.2f} s, {ours['memory'] / 2**20:.0f} MB | {cells} |")
    return "\n".join(lines)


def scaling_table(report):
    lines = ["| n (d=16, float64) | seconds | ns per pair | memory beyond the data |", "|---|---|---|---|"]
    for result in report["results"]:
        if result["case"].get("name") == "scaling":
            ours = _ours(result)
            lines.append(
                f"| {result['case']['n']:,} | {ours['seconds']:.2f} | {ours['ns_a_pair']:.2f} | {ours['memory'] / 2**20:.0f} MB |"
            )
    return "\n".join(lines)


def nca_evaluation_table(report):
    lines = [
        "| one objective and gradient | vicinal | scikit-learn | memory: vicinal | scikit-learn |",
        "|" + "---|" * 5,
    ]
    for result in report["results"]:
        case, rows = result["case"], {row["contender"]: row for row in result["rows"]}
        ours, theirs = rows["vicinal"], rows.get("scikit-learn")
        cells = ["cannot", "33 n² bytes"] if theirs is None else [f"{theirs['seconds_ratio']:.1f}x", _mb(theirs)]
        size = f"n = {case['n']:,}, {case['d']} columns to {case['rank']}"
        lines.append(f"| {size} | {ours['seconds']:.3f} s | {cells[0]} | {_mb(ours)} | {cells[1]} |")
    return "\n".join(lines)


def nca_fit_table(report):
    lines = [
        "| fit from the same start, 50 iterations at most | vicinal | objective | peer | its objective | time of the peer over ours to its objective |",
        "|" + "---|" * 6,
    ]
    for result in report["results"]:
        case, rows = result["case"], {row["contender"]: row for row in result["rows"]}
        ours = rows["vicinal"]
        for name, theirs in rows.items():
            if name.startswith("vicinal") or "seconds" not in theirs:
                continue
            reached = ours.get("seconds_to_reach", {}).get(name)
            ratio = f"{theirs['seconds'] / reached:.1f}x" if reached else "not reached"
            rows_used = f", {case['n']:,} rows" if case["n"] else ""
            what = f"{case['data']}{rows_used}, {case['rank'] or 'square'}, {case['init']}"
            lines.append(
                f"| {what} | {ours['seconds']:.2f} s | {ours['objective']:.4f} | {name}: {theirs['seconds']:.2f} s "
                f"| {theirs['objective']:.4f} | {ratio} |"
            )
    return "\n".join(lines)


def nca_mnist_line(report):
    found = report["results"][0]
    return (
        f'MNIST, {found["case"]["n"]:,} x 784 to {found["case"]["rank"]} dimensions by `solver="stochastic"`: {found["seconds"]:.0f} s on '
        f"{report['machine']['cores']} cores. 3-NN test error {found['error_nca']:.2%}, by PCA to as many {found['error_pca']:.2%}; of the "
        f"test rows {found['only_nca_wrong']} are wrong under NCA alone, {found['only_pca_wrong']} under PCA alone (McNemar's test: "
        f"p = {found['mcnemar_p']:.1g})."
    )


def lca_table(report):
    return "\n".join(
        ["| LCA | measured |", "|---|---|", *(f"| {what} | {found} |" for what, found in _lca_rows(report))]
    )


def _lca_rows(report):
    """Yield the description and the result of each measurement."""
    found = report["passes"]
    yield (
        f"passes of `accelerated` over those of EM to within 1e-6 nats per row of EM's limit, median of {len(found['sets'])} sets",
        f"{found['median_ratio']:.2f}",
    )
    found = report["statsmodels"]
    yield (
        f"fit of {found['n']:,} x 5 against statsmodels' `KDEMultivariate(bw='cv_ml')`, 307 of its evaluations",
        f"{found['seconds']:.2f} s, {found['times_faster']:.0f}x; held-out {found['held_out']:.2f} against {found['held_out_cv_ml']:.2f}",
    )
    found = report["covertype"]
    yield (
        f"covertype, {found['n']:,} x 10, default solver ({found['solver']})",
        f"{found['seconds']:.0f} s, {found['peak_megabytes']:.0f} MB; held-out {found['held_out']:.1f}, ParzenWindows on 20,000 rows "
        f"{found['held_out_parzen_20000']:.1f}",
    )
    for figure, exact, name in (
        ("usps", "exact", "USPS, 6,000 x 256: stochastic (B=100, N=3,000) less exact"),
        ("mnist", "em", "MNIST, 60,000 x 50: stochastic less exact EM"),
    ):
        found = report[figure]
        yield (
            f"{name} ({found[exact]['n_iter']} passes), test log-likelihood",
            f"{-found['loss']:+.2f} nats in {found['stochastic']['seconds']:.0f} s ({exact}: {found[exact]['seconds']:.0f} s)",
        )
    found = report["gauss"]
    yield f"LCAGauss on USPS, 2,000 x 256, {found['passes']} passes", f"{found['seconds']:.1f} s"


def densities_table(report):
    """Return held-out log-densities by table, of standardised columns."""
    methods = ["Scott", "mixture by BIC", "LCA()", "LCAGauss()", "ManifoldParzen()", "LocalLCA()"]
    lines = ["| table | rows x columns | " + " | ".join(methods) + " |", "|" + "---|" * (len(methods) + 2)]
    for name, result in report.items():
        means = [result["means"][method] for method in methods]
        cells = " | ".join("refused" if mean is None else f"{mean:.1f}" for mean in means)
        lines.append(f"| {name} | {result['rows']} x {result['columns']} | {cells} |")
    return "\n".join(lines)


def metrics_table(report):
    """Return error rates of three nearest neighbours by table, and their averages."""
    methods = ["standardised", "LDA", "NCA of scikit-learn", "RCA()", "NCA()"]
    lines = ["| table | " + " | ".join(methods) + " |", "|" + "---|" * (len(methods) + 1)]
    for name, result in report.items():
        lines.append(f"| {name} | " + " | ".join(f"{result[method]:.3f}" for method in methods) + " |")
    averages = [statistics.mean(result[method] for result in report.values()) for method in methods]
    return "\n".join([*lines, "| **average** | " + " | ".join(f"{mean:.3f}" for mean in averages) + " |"])


def imputation_table(report):
    """Return errors relative to IterativeImputer, and coverages, over twelve tables."""
    tables = [*report["results"].values(), *results("imputation_others")["results"].values()]
    lines = [
        "| values missing | median error, `KNNImputer` | `DensityImputer` | tables where `DensityImputer` is the best | coverage of its 90 % draws |",
        "|" + "---|" * 5,
    ]
    for share in tables[0]:
        errors = [{name: of["error"] for name, of in table[share].items()} for table in tables]
        knn, ours = (
            statistics.median(error[name] / error["IterativeImputer"] for error in errors)
            for name in ("KNNImputer", "DensityImputer")
        )
        best = sum(min(error, key=error.get) == "DensityImputer" for error in errors)
        covered = statistics.mean(table[share]["DensityImputer"]["coverage"] for table in tables)
        lines.append(f"| {share} | {knn:.2f} | {ours:.2f} | {best} of {len(tables)} | {covered:.2f} |")
    return "\n".join(lines)


def few_pairs_table(report):
    """Return the recall@10 before and after RCA(shrinkage="cv") from few pairs, over all draws."""
    lines = ["| set | pairs | raw | RCA | worst draw | raw kept |", "|" + "---|" * 6]
    for name, counts in report.items():
        for n_pairs, draws in counts.items():
            raw, learned, kept = (statistics.mean(draw[k] for draw in draws) for k in (0, 1, 4))
            worst = min(draw[1] - draw[0] for draw in draws)
            lines.append(f"| {name} | {n_pairs} | {raw:.3f} | {learned:.3f} | {worst:+.4f} | {kept:.0%} |")
    return "\n".join(lines)


def adapters_table(report):
    """Return the nDCG@10 of each way of adapting, by set."""
    methods = list(dict.fromkeys(method for result in report.values() for method in result))
    lines = ["| nDCG@10 | " + " | ".join(report) + " |", "|" + "---|" * (len(report) + 1)]
    for method in methods:
        cells = (f"{result[method]['nDCG@10']:.3f}" if method in result else "" for result in report.values())
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def skipped_table(report):
    """Return the times of passes that skip pairs beside those that visit all of them, on two threads."""
    lines = ["| one pass of LCA at its metric | every pair | skipping | ratio | pairs visited |", "|" + "---|" * 5]
    names = {
        "clusters": "100 clusters",
        "manifold": "a bent surface",
        "mnist20": "MNIST",
        "mnist50": "MNIST",
        "usps30": "USPS",
    }
    for row in report:
        if "dense_seconds" in row and row["threads"] == 2:
            about = "~" if row.get("dense_rows", row["n"]) < row["n"] else ""  # extrapolated by n^2
            lines.append(
                f"| {names.get(row['case'], row['case'])}, {row['n']:,} x {row['d']} | {about}{row['dense_seconds']:,.{0 if row['dense_seconds'] > 100 else 2}f} s "
                f"| {row['pruned_seconds']:.2f} s | {about}{row['ratio']:.3g}x | {row['visited']:.1%} |"
            )
    return "\n".join(lines)


def gpu_table(report):
    """Return the times of passes on a device, those of 64 columns and of five left out."""
    error = {dtype: max(found.values()) for dtype, found in report["agreement"].items()}
    lines = [
        f"{report['device']}, torch {report['torch']}, Triton {report['triton']}. On 3,000 rows every reduction is within "
        f"{error['float64']:.0e} of the reference in float64 and {error['float32']:.0e} in float32.",
        "",
        "| work, transfers included | ms | torch's operations, ms | error of log-sums, nats |",
        "|" + "---|" * 4,
    ]
    for row in report["passes"]:
        if row["d"] in (5, 64):
            continue
        cells = f"{row['ms']:.1f} | " + " | ".join(
            format(row[key], form) if key in row else "-"
            for key, form in (("torch_tiles_ms", ".0f"), ("log_sums_error", ".0e"))
        )
        lines.append(f"| {_gpu_work(row)} | {cells} |")
    compile_time = max(row["seconds"] for row in report["first_use"])
    fits = "; ".join(f"{row['fit']}: {row['seconds']:.2f} s" for row in report["fits"])
    lines += [
        "",
        f"Compiling the kernels of a pass takes up to {compile_time:.0f} s at the first use on a machine. Whole fits: {fits}.",
    ]
    return "\n".join(lines)


def _gpu_work(row):
    size = f"n = {row['n']:,}, d = {row['d']}, {row['dtype']}"
    rows = {"gaussian": "Gaussian rows", "clusters": "clusters in LCA's frame"}.get(row.get("rows"))
    pruned = "error" in row and row["error"] is None
    kind = f"{rows or 'Gaussian rows'}, {'pairs that cannot matter skipped' if pruned else 'every pair'}"
    works = {
        "densities": f"log-densities of {row.get('m', 0):,} new rows, {kind}, {size}",
        "nearest": f"the {row.get('k')} nearest rows of each, {size}",
        "frames": f"log-densities under a frame of {row.get('depth')} directions per point, {size}",
        "nca": f"NCA's evaluation, {size}",
        "lca": f"LCA's pass, {rows}, {size}",
        "pruned lca": f"LCA's pass, {rows}, error {row.get('error') or 0:g}, {size}",
    }
    return works[row["work"]]


def _mb(row):
    return f"{row['memory'] / 1e6:.0f} MB"


def machine_line(report):
    machine = report["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items() if version)
    return f"{machine['cores']} cores of {machine['cpu']}; Python {machine['python']}; {versions}; commit {machine['commit']}."


def answers_table(report):
    plain = ("Scott", "KDE by folds", "Gaussian")
    heads = ["table", "rows x columns", "LCA()", "ParzenWindows()", "the best plain density", *3 * ["lowest score"]]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for name, row in report.items():
        best = max((rival for rival in plain if row[rival]), key=lambda rival: row[rival]["mean"])
        rivals = [row["LCA()"], row["ParzenWindows()"], row[best]]
        means = [f"{one['mean']:.2f}" for one in rivals]
        cells = [*means[:2], f"{means[2]} ({best})", *(f"{one['lowest']:.0f}" for one in rivals)]
        lines.append(f"| {name.split('/')[-1]} | {row['rows']} x {row['columns']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


TABLES = {
    "speed": ("engine-scatter", speed_table),
    "scatter": ("engine-scatter", scatter_table),
    "density": ("engine-density", density_table),
    "scaling": ("engine-scaling", scaling_table),
    "nca_evaluation": ("nca-evaluation", nca_evaluation_table),
    "nca_fit": ("nca-fit", nca_fit_table),
    "nca_mnist": ("nca-mnist", nca_mnist_line),
    "lca": ("lca", lca_table),
    "densities": ("local_densities", densities_table),
    "answers": ("answers_densities", answers_table),
    "metrics": ("defaults_metrics_from_100", metrics_table),
    "imputation": ("imputation", imputation_table),
    "few_pairs": ("adapters-few", few_pairs_table),
    "adapters": ("adapters-side", adapters_table),
    "skipped": ("pruning", skipped_table),
    "gpu": ("gpu", gpu_table),
    "machine": ("engine-scatter", machine_line),
}


def fill(path):
    """Replace the text between <!-- table:NAME --> and <!-- end --> in a page."""

    def replace(match):
        source, render = TABLES[match[1]]
        report = results(source)
        return match[0] if report is None else f"<!-- table:{match[1]} -->\n{render(report)}\n<!-- end -->"

    text = path.read_text(encoding="utf-8")
    path.write_text(re.sub(r"<!-- table:(\w+) -->.*?<!-- end -->", replace, text, flags=re.DOTALL), encoding="utf-8")


if __name__ == "__main__":
    for page in (ROOT / "README.md", ROOT / "docs" / "benchmarks.md"):
        if page.exists():
            fill(page)
            print(f"filled {page.relative_to(ROOT)}")
