"""Write the measured tables into README.md and docs/benchmarks.md from results/*.json; nothing is typed by hand."""

import json
import re
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
        "| 10,000 queries, 100,000 points | vicinal | " + " | ".join(names) + " |",
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
    lines = ["| n (d=16, float64) | seconds | ns a pair | memory beyond the data |", "|---|---|---|---|"]
    for result in report["results"]:
        if result["case"].get("name") == "scaling":
            ours = _ours(result)
            lines.append(
                f"| {result['case']['n']:,} | {ours['seconds']:.2f} | {ours['ns_a_pair']:.2f} | {ours['memory'] / 2**20:.0f} MB |"
            )
    return "\n".join(lines)


def machine_line(report):
    machine = report["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items() if version)
    return f"{machine['cores']} cores of {machine['cpu']}; Python {machine['python']}; {versions}; commit {machine['commit']}."


TABLES = {
    "scatter": ("engine-scatter", scatter_table),
    "density": ("engine-density", density_table),
    "scaling": ("engine-scaling", scaling_table),
    "machine": ("engine-scatter", machine_line),
}


def fill(path):
    """Replace what stands between <!-- table:NAME --> and <!-- end --> in a page."""

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
