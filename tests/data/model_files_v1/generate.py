"""Write the files of format version 1 beside this script, and the results of the estimators in them.

It was run once, with the last vicinal that wrote version 1 (commit 59bd547) installed, and is kept to say what the files
hold::

    python tests/data/model_files_v1/generate.py
"""

import json
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from model_file_fits import FITS, METRICS, SINCE_VERSION_2, answers, fitted  # noqa: E402

from vicinal import io  # noqa: E402


def file_name(name):
    """A name that every file system can hold."""
    return "".join(letter if letter.isalnum() else "_" for letter in name) + ".vicinal"


def main():
    said = {}
    for name in sorted({*FITS} - {*SINCE_VERSION_2}):
        estimator = fitted(name)
        io.save(estimator, HERE / file_name(name))
        said[name] = {"file": file_name(name), "answers": answers(estimator)}
    for name in METRICS:
        path = HERE / file_name(f"{name} without rows")
        io.save(fitted(name), path, training_rows=False)
        said[f"{name}:without rows"] = {"file": path.name, "answers": answers(io.load(path))}
    (HERE / "answers.json").write_text(json.dumps(said, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
