"""Test tables in files: one reader for the library and the command, whose types do not depend on the size of the file."""

import gzip

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vicinal._files import FileError, ReadOptions, TableFile, table_file, text_file
from vicinal._files.table_file import LARGE
from vicinal.cli.wording import in_command
from vicinal.io import open_rows
from vicinal.tables import read_table

MIXED = pd.DataFrame(
    {
        "whole": np.arange(60),
        "late fraction": ["7"] * 50 + ["7.5"] * 10,
        "late text": ["1"] * 50 + ["x"] * 10,
        "late gap": ["1"] * 50 + [""] * 10,
        "first gap": [""] * 20 + ["3"] * 40,
        "late truth": ["1"] * 50 + ["True"] * 10,
        "switch with gaps": ["True", "False"] * 25 + [""] * 10,
        "huge": ["1"] * 50 + ["18446744073709551615"] * 10,
        "beyond": ["1"] * 50 + ["184467440737095516150"] * 10,
        "empty": [""] * 60,
    }
)


def written(tmp_path, text, name="t.csv"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def test_read_table_in_batches_the_same_types_and_bits(tmp_path, monkeypatch):
    MIXED.to_csv(tmp_path / "t.csv", index=False)
    whole = read_table(tmp_path / "t.csv")
    expected = ["int64", "float64", "str", "float64", "float64", "str", "object", "uint64", "str", "float64"]
    assert [
        str(dtype).replace("object", "str" if name != "switch with gaps" else "object")
        for name, dtype in whole.dtypes.items()
    ] == expected
    monkeypatch.setattr(table_file, "LARGE", 0)
    for step in (1, 7, 59, 60):
        monkeypatch.setattr(table_file, "BATCH_VALUES", step * MIXED.shape[1])
        monkeypatch.setattr("vicinal._files.text_file._PARSED_BYTES", 200)
        monkeypatch.setattr("vicinal._files.text_file._MOST_KEPT", step * 50)
        pd.testing.assert_frame_equal(read_table(tmp_path / "t.csv"), whole)


FIELDS = [
    "1",
    "-2",
    " 3",
    "+4",
    "1.5",
    "1e3",
    "inf",
    "True",
    "false",
    "x",
    "NA",
    "",
    str(2**63),
    str(2**64 - 1),
    "9" * 25,
]


@settings(max_examples=80, deadline=None)
@given(st.lists(st.sampled_from(FIELDS), min_size=1, max_size=8), st.integers(1, 4))
def test_read_table_types_do_not_depend_on_batches(fields, step):
    text = "a,b\n" + "".join(f"{field},r\n" for field in fields)
    whole = TableFile("t", data=text.encode()).read()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vicinal._files.text_file._PARSED_BYTES", 40)
        parts = list(TableFile("t", data=text.encode()).frames(step=step))
    assert {len(part) for part in parts[:-1]} <= {step}
    pd.testing.assert_frame_equal(pd.concat(parts, ignore_index=True), whole)


def test_read_table_negative_numbers_before_huge_ones_are_text(tmp_path, monkeypatch):
    """No type of the machine holds both, and in batches they must not become unsigned."""
    path = written(tmp_path, "a,b\n" + "-2,r\n" * 20 + f"{2**63},r\n" * 20)
    whole = read_table(path)
    assert whole["a"].tolist() == ["-2"] * 20 + [str(2**63)] * 20
    monkeypatch.setattr("vicinal._files.text_file._PARSED_BYTES", 40)
    pd.testing.assert_frame_equal(read_table(path), whole)


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "tsv", "parquet", "feather", "npy", "folder"])
def test_read_table_larger_than_memory_columns_of_numbers_are_mapped(ending, tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(500, 3)), columns=["x0", "x1", "x2"])
    if ending not in ("npy",):
        frame["name"], frame["n"] = rng.choice(["a", "b"], 500), np.arange(500)
    path = tmp_path / f"t.{ending}"
    if ending == "npy":
        np.save(path, frame.to_numpy())
    elif ending == "folder":
        path.mkdir()
        frame[:200].to_parquet(path / "0.parquet")
        frame[200:].to_parquet(path / "1.parquet")
    elif ending in ("parquet", "feather"):
        getattr(frame, f"to_{ending}")(path)
    else:
        frame.to_csv(path, index=False, sep="\t" if ending == "tsv" else ",")
    monkeypatch.setattr(table_file, "BATCH_VALUES", 100)
    if ending != "folder":
        pd.testing.assert_frame_equal(read_table(path), frame, check_dtype=False)
    monkeypatch.setattr(table_file, "LARGE", 0)
    table = read_table(path)
    pd.testing.assert_frame_equal(table, frame, check_dtype=False)
    base = table["x0"].to_numpy()
    while getattr(base, "base", None) is not None and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)
    assert LARGE == 64 << 20


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), max_size=6), min_size=2, max_size=2),
        min_size=1,
        max_size=12,
    )
)
def test_read_table_any_text_as_pandas_reads_it(rows):
    """Quotes, line feeds, blanks, marks of missing values, numbers: the same columns as pandas."""
    frame = pd.DataFrame(rows, columns=["a", "b"])
    frame["row"] = "r"  # so that no line is blank
    text = frame.to_csv(index=False)
    import io

    expected = pd.read_csv(io.StringIO(text), skipinitialspace=True, low_memory=False, float_precision=None)
    found = TableFile("t", data=text.encode()).read()
    for name in ("a", "b"):
        if expected[name].dtype.kind in "iufb" or found[name].dtype.kind in "iufb":
            np.testing.assert_array_equal(
                pd.to_numeric(found[name], errors="coerce").to_numpy(np.float64),
                pd.to_numeric(expected[name], errors="coerce").to_numpy(np.float64),
            )
        else:
            assert found[name].isna().tolist() == expected[name].isna().tolist()
            known = expected[name].notna()
            assert found[name][known].astype(str).tolist() == expected[name][known].astype(str).tolist()


@pytest.mark.parametrize(
    ("text", "options", "columns"),
    [
        ("a;b\n1,5;2\n2,5;3\n", {"decimal": ","}, {"a": [1.5, 2.5], "b": [2, 3]}),
        ("a,b\n +1 ,x\n 2,  y\n", {}, {"a": [1, 2], "b": ["x", "y"]}),
        ("\n\na|b\n1|2\n\n3|4\n   \n", {}, {"a": [1, 3], "b": [2, 4]}),
        ("a,a,\n1,2,3\n", {}, {"a": [1], "a.1": [2], "Unnamed: 2": [3]}),
        ("a,a,a.1\n1,2,3\n", {}, {"a": [1], "a.2": [2], "a.1": [3]}),
        ('"a\nb",c\n1,"x\ny"\n', {}, {"a\nb": [1], "c": ["x\ny"]}),
        ("1,2\n3,4\n", {"no_header": True}, {"x0": [1, 3], "x1": [2, 4]}),
        ("a,b\n-,1\nNA,2\n", {"na": ["-"], "not_na": ["NA"]}, {"a": [np.nan, "NA"], "b": [1, 2]}),
        ("a,b\n0x10,1\n0x11,2\n", {}, {"a": ["0x10", "0x11"], "b": [1, 2]}),
        ("a,b\ninf,1\n-Infinity,2\n", {}, {"a": [np.inf, -np.inf], "b": [1, 2]}),
        ("a,b\n1,é\n".encode("utf-16"), {"encoding": "utf-16"}, {"a": [1], "b": ["é"]}),
        ("a,b\n1,é\n".encode("latin-1"), {"encoding": "latin-1"}, {"a": [1], "b": ["é"]}),
        (b"\xef\xbb\xbfa,b\r\n1,2\r\n", {}, {"a": [1], "b": [2]}),
    ],
)  # fmt: skip
def test_read_table_kinds_of_text_the_columns(text, options, columns, tmp_path):
    pd.testing.assert_frame_equal(
        read_table(written(tmp_path, text), **options), pd.DataFrame(columns), check_dtype=False
    )


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, "t.csv is empty"),
        ("a,b\n", {}, "2 columns but no rows"),
        ("a,b", {}, "2 columns but no rows"),
        ("a,b\n1,2\n1,2,3\n", {}, "line 3 has 3 fields, expected 2"),
        ("a,b\n1,2\n1\n", {}, "line 3 has 1 fields, expected 2"),
        (b"a,b\n1,\xff\n", {}, "is not utf-8 text"),
        (b"a,b\n" + b"1,2\n" * 20_000 + b"1,\xff\n", {}, "is not utf-8 text"),
        ("a;b;c\n1;2;3\n", {"sep": ","}, "Pass sep=';'"),
        ("a,b\n1,2\n", {"sep": ",,"}, "must be one character"),
        ("a,b\n1,2\n", {"decimal": ","}, "must be one character other than the separator"),
        ("a,b\n1,2\n", {"encoding": "utf-99"}, "not an encoding"),
        ("a,b\n1,2\n", {"columns": ["aa"]}, r"columns: there is no column 'aa'\. Did you mean 'a'\?"),
    ],
)
def test_read_table_that_cannot_be_read_one_sentence(text, options, message, tmp_path):
    with pytest.raises(FileError, match=message) as caught:
        read_table(written(tmp_path, text), **options)
    assert "\n" not in str(caught.value)


def test_a_compressed_text_is_large_if_it_unpacks_to_much(tmp_path, monkeypatch):
    text = b"a,b\n" + b"1,2\n" * 1000
    for name, content in (("t.csv", text), ("t.csv.gz", gzip.compress(text, compresslevel=0))):
        file = TableFile(written(tmp_path, content, name))
        size = (tmp_path / name).stat().st_size
        monkeypatch.setattr("vicinal._files.table_file.LARGE", size)
        assert file.is_large == name.endswith("gz")
        monkeypatch.setattr("vicinal._files.table_file.LARGE", 4 * size)
        assert not file.is_large


def test_read_table_damaged_gzip_one_sentence(tmp_path):
    packed = gzip.compress(b"a,b\n" + b"1,2\n" * 1000)
    with pytest.raises(FileError, match="ends too early"):
        read_table(written(tmp_path, packed[:-20], "t.csv.gz"))
    with pytest.raises(FileError, match="cannot read"):
        read_table(written(tmp_path, b"no gzip", "u.csv.gz"))


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "tsv", "feather"])
def test_open_rows_of_a_text_or_feather_file_the_rows(ending, tmp_path):
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(90, 3)), columns=list("abc"))
    frame.loc[3, "b"] = np.nan
    path = tmp_path / f"t.{ending}"
    frame.to_feather(path) if ending == "feather" else frame.to_csv(
        path, index=False, sep="\t" if ending == "tsv" else ","
    )
    rows = open_rows(path, columns=["c", "b"])
    assert rows.shape == (90, 2)
    np.testing.assert_array_equal(np.concatenate(list(rows.blocks())), frame[["c", "b"]])
    with pytest.raises(FileError, match="no column 'd'"):
        open_rows(path, columns=["d"])


def test_table_file_share_grows_to_one(tmp_path, monkeypatch):
    MIXED.to_csv(tmp_path / "t.csv", index=False)
    monkeypatch.setattr(table_file, "BATCH_VALUES", 100)
    table = TableFile(str(tmp_path / "t.csv"), ReadOptions())
    rows, shares = zip(*((len(frame), table.share) for frame in table.frames()), strict=True)
    assert shares == pytest.approx(np.cumsum(rows) / len(MIXED))
    # Rows that are read again, because the fields of the search for types are too many to keep; the file is read ahead of them.
    monkeypatch.setattr(text_file, "_MOST_KEPT", 0)
    again = TableFile(str(tmp_path / "t.csv"), ReadOptions())
    assert [again.share for _ in again.frames()] == list(shares)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Pass sep=';' if", "Pass --sep ';' if"),
        ("by ',' (sep= changes it).", "by ',' (--sep changes it)."),
        ("Pass no_header=True if", "Pass --no-header if"),
        ("Pass missing='drop' to", "Pass --missing drop to"),
        ("as in encoding='latin-1' or", "as in --encoding latin-1 or"),
        ("Pass types={'a b': 'lattice:0.5'} to", "Pass --type a b=lattice:0.5 to"),
        ("log: 'a' is", "--log: 'a' is"),
        ("or drop= the columns", "or --drop the columns"),
        ("read with decimal=','.", "read with --decimal ,."),
        ("bandwidth=0.5 is", "bandwidth=0.5 is"),
    ],
)  # fmt: skip
def test_in_command_parameters_become_options(text, expected):
    assert in_command(text) == expected


def test_read_table_numbers_as_marks_of_missing_values_in_all_formats(tmp_path):
    table = pd.DataFrame({"age": [18, 999, 40], "size": [1.5, 999.0, 2.5], "name": ["a", "?", "999"]})
    for ending, write in ((".csv", table.to_csv), (".parquet", table.to_parquet), (".xlsx", table.to_excel)):
        path = tmp_path / f"table{ending}"
        write(path, index=False)
        found = read_table(path, na=["999", "?"])
        assert found.isna().to_numpy().tolist() == [[False] * 3, [True] * 3, [False, False, True]]
        assert not read_table(path).isna().to_numpy().any()
