"""Damaged tables are read, or refused with one sentence that names the file.

Tables of every format that the command reads are written, some of their bytes are changed, and the result is read as the
command does. Half of the packed tables are changed before packing, so that no checksum detects the damage.
"""

import gzip
import io
import warnings
import zipfile
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

from campaigns.harness import Bad, Case, Skip, damaged
from vicinal._app.errors import DATA, USAGE, Failure
from vicinal._app.tables import read_table

CASES = 20_000
_FOLDER = TemporaryDirectory(prefix="vicinal-campaign-")
ENDINGS = ["csv", "csv.gz", "tsv", "npy", "npz", "packed.npz", "record.npy", "parquet", "xlsx"]


@cache
def _whole(ending: str) -> bytes:
    """Return a table of numbers, texts and dates in a format."""
    rng, file = np.random.default_rng(0), io.BytesIO()
    frame = pd.DataFrame({"a": rng.normal(size=30), "b": np.arange(30), "c": list("xyz") * 10, "é": [True, False] * 15})
    numbers = frame[["a", "b"]].to_numpy()
    if ending == "npy":
        np.save(file, numbers)
    elif ending == "record.npy":
        np.save(file, frame[["a", "b"]].to_records(index=False))
    elif ending.endswith("npz"):
        save = np.savez_compressed if ending.startswith("packed") else np.savez
        save(file, X=numbers, names=np.array(["a", "b"]), y=frame["c"].to_numpy(dtype="U1"))
    elif ending == "parquet":
        frame.to_parquet(file)
    elif ending == "xlsx":
        try:
            frame.to_excel(file, index=False)
        except ImportError:
            raise Skip("openpyxl is not installed") from None
    else:
        text = frame.to_csv(index=False, sep="\t" if ending == "tsv" else ",").encode()
        file.write(gzip.compress(text, mtime=0) if ending.endswith("gz") else text)
    return file.getvalue()


def _repacked(case: Case, whole: bytes) -> bytes:
    """Return the packed table with changed contents and correct checksums."""
    case.text += "inside,"
    if case.what.endswith("gz"):
        return gzip.compress(damaged(case, gzip.decompress(whole)), mtime=0)
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(whole)) as old, zipfile.ZipFile(file, "w") as new:
        changed = str(case.choice(old.namelist()))
        for name in old.namelist():
            new.writestr(name, damaged(case, old.read(name)) if name == changed else old.read(name))
    return file.getvalue()


def check(case: Case) -> str:
    """Read one damaged table."""
    case.what = str(case.choice(ENDINGS))
    whole = _whole(case.what)
    data = (
        _repacked(case, whole)
        if case.what.endswith(("npz", "gz", "xlsx")) and case.chance(0.5)
        else damaged(case, whole)
    )
    path = Path(_FOLDER.name) / f"table.{case.what}"
    path.write_bytes(data)
    case.files = {case.what: data}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            frame = read_table(str(path))
    except Failure as failure:
        if failure.code not in (DATA, USAGE) or "\n" in str(failure) or path.name not in str(failure):
            raise Bad(f"not one sentence that names the file: {failure}") from failure
        return "refused"
    if not all(isinstance(name, str) for name in frame.columns) or not frame.size:
        raise Bad(f"read as a table of shape {frame.shape} with columns {list(frame.columns)}")
    return "read"
