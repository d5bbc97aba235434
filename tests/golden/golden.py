"""Recorded outputs of the command on small tables, so that every later difference is seen.

    python tests/golden/golden.py write      records the outputs of this version
    python tests/golden/golden.py compare    prints every difference from the record

Numbers are compared to a relative tolerance; times and sizes of files are not compared. `tests/test_golden.py` runs the comparison.
"""

import contextlib
import gzip
import io
import json
import os
import re
import sys
import tempfile
import warnings
from html.parser import HTMLParser
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine

RECORD = Path(__file__).with_name("outputs.json")
TOLERANCE = 1e-6
_NUMBER = re.compile(r"[-+\u2212]?(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_CHANGING = (
    (re.compile(r"\d[\d,.]* (s|min)\b"), "TIME"),
    (re.compile(r"\d[\d,]* bytes"), "SIZE"),
    (re.compile(r'"(bytes|seconds)": [\d.]+'), r'"\1": SIZE'),
)


def write_tables(folder: Path) -> None:
    """Write eleven small tables: types, gaps, separators, encodings and formats."""
    rng = np.random.default_rng(0)
    wine = load_wine(as_frame=True).frame.rename(columns={"target": "cultivar"})
    wine.to_csv(folder / "wine.csv", index=False)
    load_iris(as_frame=True).frame.to_parquet(folder / "iris.parquet")
    load_diabetes(as_frame=True).frame.iloc[:150].to_csv(folder / "diabetes.tsv", sep="\t", index=False)
    cancer = load_breast_cancer(as_frame=True).frame.iloc[:120, [0, 1, 2, 3, 4, -1]]
    with gzip.GzipFile(folder / "cancer.csv.gz", "wb", mtime=0) as file:
        file.write(cancer.to_csv(index=False).encode())
    kind = rng.integers(2, size=120)
    mixed = pd.DataFrame(
        {
            "id": np.arange(1, 121),
            "length": np.round(1000.0 * (rng.normal(size=120) + 2 * kind), 1),
            "width": rng.normal(size=120) * 0.01,
            "count": rng.poisson(4.0, size=120),
            "colour": rng.choice(["red", "green", "blue"], size=120),
            "day": pd.date_range("2024-01-03", periods=120, freq="D").strftime("%Y-%m-%d"),
            "member": rng.choice(["True", "False"], size=120),
            "same": 7,
            "kind": np.where(kind, "b", "a"),
        }
    )
    mixed.to_csv(folder / "mixed.csv", index=False)
    gaps = mixed.drop(columns=["day", "same"])
    gaps["income"] = np.exp(rng.normal(10.0, 1.2, size=120))
    gaps.loc[rng.choice(120, 9, replace=False), "length"] = np.nan
    gaps.loc[rng.choice(120, 5, replace=False), "width"] = np.nan
    gaps.to_csv(folder / "gaps.csv", index=False)
    mixed[["length", "width", "kind"]].to_csv(folder / "comma.csv", sep=";", decimal=",", index=False)
    mixed.assign(colour=mixed["colour"].replace("red", "rosé"))[["length", "width", "colour"]].to_csv(
        folder / "latin.csv", index=False, encoding="latin-1"
    )
    mixed.to_json(folder / "mixed.jsonl", orient="records", lines=True)
    rows = rng.normal(size=(80, 4)) @ rng.normal(size=(4, 4))
    np.save(folder / "rows.npy", rows)
    np.savez(folder / "rows.npz", X=rows, names=np.array(list("abcd")), y=np.arange(80) % 3)
    (folder / "pairs.csv").write_text("\n".join(f"{i},{(i + 3) % 80}" for i in range(80)), encoding="utf-8")
    (folder / "ragged.csv").write_text("a,b\n1,2\n3,4,5\n", encoding="utf-8")
    (folder / "numbers.csv").write_text("1.5,2.5\n3.5,1.25\n0.5,7\n", encoding="utf-8")
    words = rng.normal(size=(200, 8)).astype(np.float32)
    np.save(folder / "corpus.npy", np.repeat(words[:100], 2, axis=0) + words[::-1] * np.repeat([2.0, 0.1], 4))
    (folder / "corpus-pairs.csv").write_text(
        "a,b\n" + "\n".join(f"{2 * i},{2 * i + 1}" for i in range(100)), encoding="utf-8"
    )


COMMANDS = """
learn wine.csv --method lca --drop cultivar --set reg=0.01 -o lca.vicinal
inspect lca.vicinal
inspect lca.vicinal --json
transform lca.vicinal wine.csv -o images.csv
score lca.vicinal wine.csv --top 5 --explain
score lca.vicinal wine.csv --as-new --only-outliers --keep cultivar
score lca.vicinal wine.csv --fdr 0.2 --sort --json --top 3
score lca.vicinal --training --only-outliers
neighbors lca.vicinal wine.csv -k 2 --query wine.csv --json -o near.csv
report lca.vicinal wine.csv --target cultivar -o page.html
learn iris.parquet --method rca --target target -o rca.vicinal --json
transform rca.vicinal iris.parquet --keep target -o images.parquet
inspect rca.vicinal
score rca.vicinal iris.parquet
learn diabetes.tsv --method nca --target target --set n_components=2 --set max_iter=20 -o nca.vicinal
learn cancer.csv.gz --method parzen --drop target -o parzen.vicinal
score parzen.vicinal cancer.csv.gz --sort --top 3
learn mixed.csv --method manifold-parzen --drop kind -o parzens.vicinal
score parzens.vicinal mixed.csv --top 2
learn mixed.csv --method rca --target kind --one-hot -o one-hot.vicinal
inspect mixed.csv
inspect mixed.csv --json --type count=continuous --log length
inspect gaps.csv --drop id
inspect mixed.jsonl
inspect comma.csv
inspect comma.csv --decimal ,
inspect latin.csv
inspect latin.csv --encoding latin-1
inspect rows.npy
inspect rows.npz
inspect numbers.csv
inspect numbers.csv --no-header
inspect ragged.csv
outliers gaps.csv --drop id,kind --log income --top 4
outliers wine.csv --drop cultivar
learn gaps.csv --method lca --drop kind -o refused.vicinal
learn gaps.csv --method lca --drop kind,id --missing impute --set reg=0.01 -o imputed.vicinal
transform imputed.vicinal gaps.csv --missing impute -o filled.csv
learn rows.npy --method rca --pairs pairs.csv -o pairs.vicinal
compare iris.parquet --target target --fast --methods euclidean,z-scored,rca,parzen-loo --report compare.html
compare mixed.csv --target length --fast --methods z-scored,parzen-scott --one-hot --json
adapt corpus.npy --pairs corpus-pairs.csv --methods rca -o adapter.vicinal --report adapter.html
score lca.vicinal iris.parquet
learn wine.csv --method lca --drop cultivr -o no.vicinal
learn wine.csv --method rca -o no.vicinal
transform nowhere.vicinal wine.csv
""".strip().splitlines()
FILES = ("images.csv", "near.csv", "images.parquet", "filled.csv")
PAGES = ("page.html", "compare.html", "adapter.html")


def outputs() -> dict[str, object]:
    """Run all commands in a new folder, and return what they print and write."""
    from vicinal.cli import main

    before, found, nothing = os.getcwd(), {}, contextlib.nullcontext()
    with tempfile.TemporaryDirectory() as folder:
        write_tables(Path(folder))
        os.chdir(folder)
        try:
            for command in COMMANDS:
                out, err = io.StringIO(), io.StringIO()
                with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
                    try:
                        # The page about an adapter shows how long it took to learn.
                        with (
                            mock.patch("time.perf_counter", return_value=0.0)
                            if command.startswith("adapt")
                            else nothing
                        ):
                            code = main(command.split())
                    except SystemExit as stop:
                        code = stop.code
                found[command] = {"code": code, "out": _stable(out.getvalue()), "err": _stable(err.getvalue())}
            found["files"] = {name: _table(name) for name in FILES}
            found["pages"] = {name: _stable(visible_text(Path(name).read_text(encoding="utf-8"))) for name in PAGES}
            found["model"] = _model("lca.vicinal")
            found["described"] = {path.name: _described(path) for path in sorted(Path().glob("*.vicinal"))}
        finally:
            os.chdir(before)
    return found


def _stable(text: str) -> list[str]:
    """Return the lines of a text without times, sizes and progress."""
    for pattern, instead in _CHANGING:
        text = pattern.sub(instead, text)
    return [line.rstrip() for line in text.splitlines() if line.strip() and not line.startswith("[")]


def _table(name: str) -> list[str]:
    frame = pd.read_parquet(name) if name.endswith(".parquet") else pd.read_csv(name)
    return frame.iloc[::25].to_csv(index=False, float_format="%.10g").splitlines()


def _model(path: str) -> dict[str, object]:
    from vicinal import io as model_io

    model = model_io.load(path)
    arrays = {
        "covariance_": model[-1].covariance_,
        "components_": model[-1].components_,
        "scale_": model.named_steps["scale"].scale_,
    }
    described = {name: [f"{value:.10g}" for value in np.ravel(array)] for name, array in arrays.items()}
    return {"steps": [type(step).__name__ for _, step in model.steps], **described}


def _described(path: Path) -> dict[str, object]:
    """Return what a model file holds: values and names by attribute, dtypes and shapes by array."""
    from vicinal import io as model_io

    described = model_io.describe(path)
    arrays = {name: f"{part['dtype']} {part['shape']}" for name, part in described["arrays"].items()}
    return {"class": described["class"], "arrays": arrays} | {
        part: {name: str(value) for name, value in described[part].items()} for part in ("parameters", "attributes")
    }


class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._hidden += tag in ("style", "script")

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in ("style", "script")

    def handle_data(self, data: str) -> None:
        if not self._hidden and data.strip():
            self.lines.append(" ".join(data.split()))


def visible_text(page: str) -> str:
    """Return the text of an HTML page, without its script, its data and its style."""
    parser = _Text()
    parser.feed(page)
    return "\n".join(parser.lines)


def differences(old: object, new: object, where: str = "") -> list[str]:
    """Return where two records differ by more than the tolerance."""
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            line
            for key in dict.fromkeys([*old, *new])
            for line in differences(old.get(key), new.get(key), f"{where}/{key}")
        ]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [line for a, b in zip(old, new, strict=True) for line in differences(a, b, where)]
    if isinstance(old, str) and isinstance(new, str):
        return [] if _equal(old, new) else [f"{where}:\n  - {old}\n  + {new}"]
    if isinstance(old, list) and isinstance(new, list):
        import difflib

        lines = [
            line for line in difflib.unified_diff(old, new, lineterm="", n=0) if line[:2] not in ("--", "++", "@@")
        ]
        return [f"{where}:\n  " + "\n  ".join(lines)]
    return [] if old == new else [f"{where}:\n  - {old!r}\n  + {new!r}"]


def _equal(old: str, new: str) -> bool:
    if _NUMBER.sub("#", old) != _NUMBER.sub("#", new):
        return False
    numbers = ([float(n.replace(",", "").replace("\u2212", "-")) for n in _NUMBER.findall(text)] for text in (old, new))
    return all(abs(a - b) <= TOLERANCE * max(abs(a), abs(b), 1e-9) for a, b in zip(*numbers, strict=True))


def recorded() -> dict[str, object]:
    """Return the record."""
    return json.loads(RECORD.read_text(encoding="utf-8"))


if __name__ == "__main__":
    if sys.argv[1:] == ["write"]:
        RECORD.write_text(json.dumps(outputs(), indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"{RECORD}: {RECORD.stat().st_size:,} bytes")
    else:
        print("\n".join(differences(recorded(), outputs())) or "no difference")
