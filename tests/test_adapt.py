"""Test `vicinal adapt`, from files of vectors and pairs to a model and a report on held-out pairs."""

import json
import os
import sys
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from vicinal import io, retrieval
from vicinal._retrieval.adaptation import _parts_of_pairs
from vicinal.cli import main
from vicinal.cli.console import Console
from vicinal.cli.errors import DATA, MODEL, OK, USAGE
from vicinal.cli.pairs import as_row_numbers, read_pair_table
from vicinal.cli.vectors import read_column, read_vectors


def things(seed=0, n=150):
    """Two views of each thing, alike in 8 of 20 columns; the others are loud noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(2 * n, 20)) * 3.0
    X[:, :8] = np.repeat(rng.normal(size=(n, 8)), 2, axis=0) + 0.1 * rng.normal(size=(2 * n, 8))
    return X.astype(np.float32), np.arange(2 * n).reshape(n, 2)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, pairs = things()
    np.save("corpus.npy", X)
    pd.DataFrame(pairs, columns=["a", "b"]).to_csv("pairs.csv", index=False)
    pd.DataFrame({"text": [f"<b>thing {i // 2}</b>" for i in range(len(X))]}).to_csv("texts.csv", index=False)
    return tmp_path


def test_pairs_to_model_and_report(folder, capsys):
    code = main(
        [
            "adapt",
            "corpus.npy",
            "--pairs",
            "pairs.csv",
            "--texts",
            "texts.csv",
            "-o",
            "a.vicinal",
            "--report",
            "a.html",
            "--json",
            "-q",
        ]
    )
    assert code == OK
    found = json.loads(capsys.readouterr().out)
    assert found["best"] in ("rca", "anchors")
    assert found["after"]["measures"]["recall@10"]["mean"] > found["before"]["measures"]["recall@10"]["mean"] + 0.3
    assert found["gain"]["measures"]["nDCG@10"]["interval"][0] > 0
    X, pairs = things()
    model = io.load("a.vicinal")
    assert [type(step).__name__ for _, step in model.steps][::2] == ["Normalizer", "Normalizer"]
    assert retrieval.evaluate(None, X, pairs, model=model, k=1, n_bootstrap=2).mean["recall@1"] > 0.7
    page = Path("a.html").read_text()
    assert "&lt;b&gt;thing" in page
    assert "<b>thing" not in page
    assert "neighbours changed" in page
    assert "http://" not in page.replace("http-equiv", "")


class Noise:
    """A map that makes every search random."""

    def transform(self, X):
        return np.random.default_rng(len(X)).normal(size=np.shape(X))


def test_it_says_plainly_when_raw_is_best_and_writes_no_model(folder, monkeypatch, capsys):
    X, _ = things()
    X[:, 8:] *= 0.01  # the raw rows find their mates
    np.save("corpus.npy", X)
    monkeypatch.setattr("vicinal._retrieval.adaptation._fitted", lambda *_: [None, SimpleNamespace(shrinkage_=0.5)])

    def measured(known, part, model, engine):
        model = None if model is None else Noise()
        return retrieval.evaluate(np.unique(part), known.corpus, part, model=model, n_bootstrap=20)

    monkeypatch.setattr("vicinal._retrieval.adaptation._evaluated", measured)
    assert main(["adapt", "corpus.npy", "--pairs", "pairs.csv", "-o", "a.vicinal", "--methods", "rca", "-q"]) == OK
    assert (
        "raw embeddings are best: no adapter helps on these pairs (by two standard errors of nDCG@10)"
        in capsys.readouterr().out
    )
    assert not Path("a.vicinal").exists()


def test_an_adapter_that_loses_on_the_last_pairs_is_shown_and_not_written(folder, monkeypatch, capsys):
    # The last pairs were once used to choose: the page then showed the raw rows before and after.
    def measured(known, part, model, engine):
        model = Noise() if model is not None and part is known.test else None if part is known.test else model
        return retrieval.evaluate(np.unique(part), known.corpus, part, model=model, n_bootstrap=20)

    monkeypatch.setattr("vicinal._retrieval.adaptation._evaluated", measured)
    given = ["adapt", "corpus.npy", "--pairs", "pairs.csv", "-o", "a.vicinal", "--methods", "rca", "--json", "-q"]
    assert main(given) == OK
    found = json.loads(capsys.readouterr().out)
    assert (found["best"], found["measured"], found["model"]) == ("raw", "rca", None)
    assert "rca was better on the pairs for choosing the method, but nDCG@10 changes by -" in found["verdict"]
    assert found["gain"]["measures"]["nDCG@10"]["mean"] < 0
    assert not Path("a.vicinal").exists()


@pytest.mark.parametrize("kind", ["npz", "parquet", "csv"])
def test_formats_of_vectors_queries_and_labels(folder, kind, capsys):
    X, _ = things()
    if kind == "npz":
        np.savez("c.npz", X=X)
    elif kind == "parquet":
        pd.DataFrame({"id": range(len(X)), "vector": list(X)}).to_parquet("c.parquet")
    else:
        pd.DataFrame(X).to_csv("c.csv", index=False)
    np.save("q.npy", X[::2])
    pd.DataFrame({"q": range(150), "r": range(1, 300, 2)}).to_csv("across.csv", index=False)
    pd.DataFrame({"label": [f"t{i // 2}" for i in range(300)]}).to_csv("labels.csv", index=False)
    given = ["--queries", "q.npy", "--pairs", "across.csv"] if kind == "npz" else ["--labels", "labels.csv"]
    assert main(["adapt", f"c.{kind}", *given, "-o", "a.vicinal", "--methods", "rca", "--json", "-q"]) == OK
    found = json.loads(capsys.readouterr().out)
    # A query in a table of its own may find its own row of the corpus, which is no answer here.
    assert found["after"]["measures"]["recall@10"]["mean"] > 0.7


def test_a_map_to_fewer_columns_is_measured_saved_and_used(folder, monkeypatch, capsys):
    monkeypatch.setattr("vicinal._retrieval.adaptation._LARGEST_RANK", 8)
    assert main(["adapt", "corpus.npy", "--pairs", "pairs.csv", "--methods", "anchors", "-o", "a.vicinal", "-q"]) == OK
    model, (X, _) = io.load("a.vicinal"), things()
    assert model.transform(X).shape == (300, 8)
    capsys.readouterr()
    assert main(["inspect", "a.vicinal"]) == OK  # it once described the Normalizer at the end
    said = capsys.readouterr().out
    assert said.startswith("AnchorNCA in a.vicinal")
    assert "8 components" in said
    assert "unit length   rows and their images" in said
    assert main(["neighbors", "a.vicinal", "corpus.npy", "-k", "1", "-q"]) == OK
    found = pd.read_csv(StringIO(capsys.readouterr().out))
    np.testing.assert_array_equal(found["neighbor"], retrieval.search(None, X, 1, model=model).indices[:, 0])


def test_chains_of_pairs_stay_together():
    pairs = np.array([[i, i + 1] for i in range(0, 99) if i % 5 != 4])
    components, parts = _parts_of_pairs(pairs, 100, None, 0)
    assert len(set(components)) == 20
    rows = [set(part.ravel()) for part in parts]
    assert sum(map(len, parts)) == len(pairs)
    assert len(set.union(*rows)) == sum(map(len, rows))  # no row is in two parts


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ("--pairs far.csv", DATA, "from 0 to 299"),
        ("--pairs few.csv", DATA, "cannot be divided"),
        ("--pairs pairs.csv --texts few.csv", DATA, "expected 300 rows"),
        ("--pairs pairs.csv --methods lda", USAGE, "rca, anchors"),
        ("--labels texts.csv --queries corpus.npy", USAGE, "not to those of --queries"),
        ("--pairs pairs.csv --queries wide.npy", DATA, "the 20 columns of the corpus"),
    ],
)
def test_what_is_refused(folder, capsys, change, code, words):
    Path("far.csv").write_text("a,b\n0,300\n")
    Path("few.csv").write_text("a,b\n0,1\n2,3\n")
    np.save("wide.npy", np.ones((300, 21)))
    assert main(["adapt", "corpus.npy", *change.split(), "-o", "a.vicinal"]) == code
    assert words in capsys.readouterr().err
    assert not Path("a.vicinal").exists()


@pytest.mark.parametrize(("row", "words"), [(np.nan, "row 7 contains NaN"), (0.0, "row 7 is zero")])
def test_vectors_without_a_direction_are_named(folder, capsys, row, words):
    X, _ = things()
    X[7] = row
    np.save("corpus.npy", X)
    assert main(["adapt", "corpus.npy", "--pairs", "pairs.csv", "-o", "a.vicinal"]) == DATA
    assert words in capsys.readouterr().err


def test_a_first_line_of_numbers_is_data(folder, capsys):
    # As column names it would move every row number by one, and lose a pair.
    X, pairs = things()
    np.savetxt("plain.csv", X, delimiter=",")
    np.savetxt("plain_pairs.csv", pairs[::-1], fmt="%d", delimiter=",")
    pd.DataFrame(X).to_csv("named.csv", index=False)  # its names are 0, 1, 2, ...
    for name in ("plain.csv", "named.csv"):
        np.testing.assert_allclose(read_vectors(name, Console(quiet=True)), X, rtol=1e-6)
    np.testing.assert_array_equal(
        as_row_numbers(read_pair_table("plain_pairs.csv", Console(quiet=True)), ""), pairs[::-1]
    )
    Path("plain_texts.csv").write_text("\n".join(f"thing {i}" for i in range(300)))
    assert read_column("plain_texts.csv", Console(quiet=True), 300, "--texts")[0] == "thing 0"


def test_one_of_several_arrays_is_chosen_by_its_name(folder, capsys):
    X, _ = things()
    np.savez("two.npz", a=X, b=2 * X)
    np.testing.assert_array_equal(read_vectors("two.npz", Console(quiet=True), "b"), 2 * X)
    assert main(["adapt", "two.npz", "--pairs", "pairs.csv", "-o", "a.vicinal"]) == DATA
    assert "Choose one with --vector" in capsys.readouterr().err


def test_texts_of_queries_are_shown(folder, capsys):
    X, _ = things()
    np.save("q.npy", X[::2])
    pd.DataFrame({"q": range(150), "r": range(1, 300, 2)}).to_csv("across.csv", index=False)
    pd.DataFrame({"text": [f"question {i}" for i in range(150)]}).to_csv("questions.csv", index=False)
    given = [
        "adapt",
        "corpus.npy",
        "--queries",
        "q.npy",
        "--pairs",
        "across.csv",
        "--texts",
        "texts.csv",
        "-o",
        "a.vicinal",
    ]
    given += ["--methods", "rca", "-q", "--report", "a.html"]
    assert main([*given, "--query-texts", "questions.csv"]) == OK
    page = Path("a.html").read_text()
    assert "<h3>question " in page
    assert '<li class="hit">&lt;b&gt;thing' in page
    assert (
        main(["adapt", "corpus.npy", "--pairs", "pairs.csv", "--query-texts", "texts.csv", "-o", "b.vicinal"]) == USAGE
    )
    assert "--queries, which were not passed" in capsys.readouterr().err


def test_labels_are_counted_in_rows(folder, capsys):
    pd.DataFrame({"label": [f"t{i // 2}" for i in range(300)]}).to_csv("labels.csv", index=False)
    assert main(["adapt", "corpus.npy", "--labels", "labels.csv", "-o", "a.vicinal", "--methods", "rca", "-q"]) == OK
    assert "on 60 unseen rows" in capsys.readouterr().out


def test_pairs_without_a_header_that_begin_with_0_and_1_are_all_read(folder):
    np.savetxt("plain_pairs.csv", [[0, 1], [2, 3], [4, 5]], fmt="%d", delimiter=",")
    found = as_row_numbers(read_pair_table("plain_pairs.csv", Console(quiet=True)), "")
    np.testing.assert_array_equal(found, [[0, 1], [2, 3], [4, 5]])


def test_adapter_is_named_by_its_metric(folder, capsys):
    assert main(["adapt", "corpus.npy", "--pairs", "pairs.csv", "-o", "a.vicinal", "--methods", "rca", "-q"]) == OK
    assert main(["transform", "a.vicinal", "corpus.npy", "-o", "images.csv", "-q"]) == OK
    assert pd.read_csv("images.csv").columns[0] == "rca0"
    assert main(["report", "a.vicinal", "corpus.npy", "-o", "r.html", "-q"]) == OK
    assert "What RCA learned" in Path("r.html").read_text()
    assert main(["score", "a.vicinal", "corpus.npy"]) == MODEL
    assert "the model is a RCA" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_report_with_direction_marks_and_a_name_that_is_not_utf_8_is_written_with_escapes(folder):
    corpus = os.fsdecode(b"c\xff.npy")
    Path("corpus.npy").rename(corpus)
    pd.DataFrame({"text": [f"thing\u202e {i // 2}" for i in range(300)]}).to_csv("texts.csv", index=False)
    more = ["--texts", "texts.csv", "--report", "r.html", "-q"]
    assert main(["adapt", corpus, "--pairs", "pairs.csv", "-o", "a.vicinal", "--methods", "rca", *more]) == OK
    page = Path("r.html").read_text()
    assert "c\\udcff.npy" in page
    assert "thing\\u202e" in page
    assert "\u202e" not in page


@pytest.mark.parametrize("damage", ["empty", "zeros", "negative shape"])
def test_damaged_npy_is_a_failure_of_the_data(folder, capsys, damage):
    content = Path("corpus.npy").read_bytes()
    damaged = {"empty": b"", "zeros": bytes(400), "negative shape": content.replace(b"(300, 20)", b"(300,-20)")}
    Path("bad.npy").write_bytes(damaged[damage])
    for inputs in (["bad.npy"], ["corpus.npy", "--queries", "bad.npy"]):
        assert main(["adapt", *inputs, "--pairs", "pairs.csv", "-o", "a.vicinal"]) == DATA
        err = capsys.readouterr().err
        assert "cannot read bad.npy as NPY" in err
        assert "unsafely" not in err


def test_adapt_in_python_is_what_the_command_does(folder, capsys):
    X, pairs = things()
    result = retrieval.adapt(X, pairs, methods=["rca"])
    assert (
        main(["adapt", "corpus.npy", "--pairs", "pairs.csv", "--methods", "rca", "-o", "a.vicinal", "--json", "-q"])
        == OK
    )
    found = json.loads(capsys.readouterr().out)
    assert found.pop("model") == "a.vicinal"
    expected = json.loads(json.dumps(result.to_dict()))
    for one in (found, expected):
        one["methods"]["rca"].pop("seconds")
    assert found == expected
    np.testing.assert_array_equal(io.load("a.vicinal").transform(X), result.model.transform(X))


def test_changed_queries_name_rows_that_belong_together_in_both_directions():
    X, pairs = things()
    result = retrieval.adapt(X, pairs, methods=["rca"])
    test = {frozenset(pair) for pair in result._parts.test.tolist()}
    changed = result.changed_queries(most=200)
    assert len(changed) == len({one["query"] for one in changed}) > 20
    for one in changed:
        for side in ("before", "after"):
            assert len(one[side]) == 5
            for row, belongs in one[side]:
                assert belongs == (frozenset((one["query"], row)) in test)
    hits = {side: sum(belongs for one in changed for _, belongs in one[side]) for side in ("before", "after")}
    assert hits["after"] > hits["before"] + 10
    assert retrieval.adapt(X[:, :8], pairs, methods=["rca"]).best in ("raw", "rca")


def test_adapt_calls_progress_before_each_step():
    X, pairs = things()
    steps = []
    retrieval.adapt(X, pairs, methods=["rca"], progress=lambda *step: steps.append(step))
    assert [text for _, _, text in steps][:3] == ["learning rca", "evaluating raw", "evaluating rca"]
    assert [(done, total) for done, total, _ in steps] == [(i, 4) for i in range(4)]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"relevant": [[0, 300]]}, "the second column must hold row numbers from 0 to 299"),
        ({"relevant": [[0.5, 1.0]]}, "must hold pairs of positions"),
        ({"relevant": [0, 1]}, "relevant"),
        ({"methods": []}, "methods must be some of rca, anchors, got none"),
        ({"relevant": np.zeros(300), "queries": np.ones((3, 20))}, "relevant must hold pairs if queries is given"),
        ({"random_state": -1}, "random_state"),
    ],
)
def test_adapt_refuses_arguments_by_their_names(change, words):
    X, pairs = things()
    with pytest.raises(ValueError, match=words):
        retrieval.adapt(X, **{"relevant": pairs, **change})
