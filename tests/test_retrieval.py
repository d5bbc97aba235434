"""`vicinal.retrieval`: measures against other libraries and literal definitions, and an exact search in blocks."""

import tracemalloc

import numpy as np
import pytest
from needs import needs
from scipy.sparse import csr_array
from sklearn.metrics import ndcg_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, normalize

from vicinal import RCA, Engine, retrieval
from vicinal._retrieval.search import search_blocks


def rows_of(n, d=6, seed=0, dtype=np.float64):
    return np.random.default_rng(seed).normal(size=(n, d)).astype(dtype)


def judged(m, n, per_query, seed=1):
    """Judgements (query, row, grade) with grades 1 to 3."""
    rng = np.random.default_rng(seed)
    rows = np.concatenate([rng.choice(n, per_query, replace=False) for _ in range(m)])
    return np.column_stack([np.repeat(np.arange(m), per_query), rows, rng.integers(1, 4, size=m * per_query)])


def by_hand(Q, X, similarity):
    """The order of all rows for each query, from the whole matrix of scores."""
    if similarity == "cosine":
        scores = normalize(Q) @ normalize(X).T
    elif similarity == "dot":
        scores = Q @ X.T
    else:
        scores = -((Q[:, None] - X[None]) ** 2).sum(axis=2)
    return np.argsort(-scores, axis=1, kind="stable"), scores


@pytest.mark.parametrize("similarity", ["cosine", "dot", "euclidean"])
def test_measures_are_those_of_trec_eval(similarity):
    ir_measures = needs("ir_measures")  # whose provider of these measures is trec_eval itself
    Q, X, judgements = rows_of(30, seed=2), rows_of(200), judged(30, 200, 7)
    found = retrieval.evaluate(Q, X, judgements, similarity=similarity, k=(1, 5, 10), depth=50, n_bootstrap=10)
    order, scores = by_hand(Q, X, similarity)
    qrels = {f"{i}": {f"d{r}": int(g) for q, r, g in judgements if q == i} for i in range(30)}
    run = {f"{i}": {f"d{r}": float(scores[i, r]) for r in order[i, :50]} for i in range(30)}
    theirs = {"recall@1": "R@1", "recall@10": "R@10", "precision@5": "P@5", "nDCG@10": "nDCG@10", "nDCG@5": "nDCG@5",
              "MRR@50": "RR@50", "MAP@50": "AP@50"}  # fmt: skip
    for ours, name in theirs.items():
        values = {
            one.query_id: one.value for one in ir_measures.iter_calc([ir_measures.parse_measure(name)], qrels, run)
        }
        np.testing.assert_allclose(found.per_query[ours], [values[f"{i}"] for i in range(30)], rtol=1e-9, err_msg=ours)


def test_ndcg_is_that_of_scikit_learn():
    Q, X, judgements = rows_of(20, seed=3), rows_of(120), judged(20, 120, 9)
    found = retrieval.evaluate(Q, X, judgements, k=(3, 10), depth=10, n_bootstrap=5)
    grades = np.zeros((20, 120))
    grades[judgements[:, 0], judgements[:, 1]] = judgements[:, 2]
    scores = by_hand(Q, X, "cosine")[1]
    for k in (3, 10):
        assert found.mean[f"nDCG@{k}"] == pytest.approx(ndcg_score(grades, scores, k=k), rel=1e-12)


def test_measures_of_a_ranking_that_can_be_checked_by_eye():
    X = np.array([[1.0], [2.0], [3.0], [4.0], [5.0]])
    found = retrieval.evaluate([[0.0]], X, [[0, 1], [0, 3]], similarity="euclidean", k=(1, 2, 4), n_bootstrap=3)
    # The rows come in their order; the second and the fourth are relevant.
    assert found.mean["recall@1"] == 0.0
    assert found.mean["recall@2"] == 0.5
    assert found.mean["precision@4"] == 0.5
    assert found.mean["MRR@5"] == 0.5
    assert found.mean["MAP@5"] == pytest.approx((1 / 2 + 2 / 4) / 2)
    gain, best = 1 / np.log2(3) + 1 / np.log2(5), 1 + 1 / np.log2(3)
    assert found.mean["nDCG@4"] == pytest.approx(gain / best)


def test_labels_pairs_judgements_and_mappings_say_the_same():
    X, labels = rows_of(60, seed=4), np.arange(60) % 12
    pairs = [(i, j) for i in range(60) for j in range(60) if i < j and labels[i] == labels[j]]
    both = [(i, j) for i in range(60) for j in range(60) if i != j and labels[i] == labels[j]]
    ways = [
        labels,
        np.array(pairs),
        np.array([(i, j, 1) for i, j in both]),
        {i: [j for a, j in both if a == i] for i in range(60)},
    ]
    results = [retrieval.evaluate(None, X, way, k=5, depth=20, n_bootstrap=20) for way in ways]
    for other in results[1:]:
        assert other.mean == results[0].mean
        assert other.intervals == results[0].intervals


def test_a_query_does_not_find_itself_but_finds_its_duplicate():
    X = np.repeat(rows_of(20, seed=5), 2, axis=0)
    pairs = np.arange(40).reshape(20, 2)
    found = retrieval.evaluate(None, X, pairs, k=1, n_bootstrap=5)
    assert found.mean["recall@1"] == 1.0
    indices = retrieval.search(None, X, 3).indices
    assert not (indices == np.arange(40)[:, None]).any()
    np.testing.assert_array_equal(retrieval.search([7, 3], X, 3).indices, indices[[7, 3]])


@pytest.mark.parametrize("similarity", ["cosine", "dot", "euclidean"])
def test_search_in_blocks_is_the_whole_sort(similarity, monkeypatch):
    monkeypatch.setattr("vicinal._retrieval.search._LEAST_ROWS", 64)
    Q, X = rows_of(80, 40, seed=6, dtype=np.float32), rows_of(3000, 40, dtype=np.float32)
    X[2000:2010] = X[:10]  # equal rows in different blocks: the first comes first
    engine = Engine(memory="1 MB")
    found = retrieval.search(Q, X, 12, similarity=similarity, engine=engine)
    order, scores = by_hand(Q.astype(np.float64), X.astype(np.float64), similarity)
    expected = np.take_along_axis(scores, order[:, :12], axis=1)
    mine = np.take_along_axis(scores, found.indices, axis=1)
    np.testing.assert_allclose(mine, expected, rtol=1e-6, atol=1e-6)
    shown = -(found.scores**2) if similarity == "euclidean" else found.scores
    np.testing.assert_allclose(shown, expected, rtol=1e-5, atol=1e-5)
    own = retrieval.search(np.arange(500), X, 12, similarity=similarity, engine=engine).indices
    assert not (own == np.arange(500)[:, None]).any()


def test_a_memory_map_is_searched_as_an_array_is(tmp_path):
    X = rows_of(500, 8, dtype=np.float32)
    np.save(tmp_path / "corpus.npy", X)
    there = np.load(tmp_path / "corpus.npy", mmap_mode="r")
    np.testing.assert_array_equal(retrieval.search(X[:9], there, 5).indices, retrieval.search(X[:9], X, 5).indices)


def test_a_search_keeps_to_its_memory(tmp_path):
    X = rows_of(20_000, 128, dtype=np.float32)  # 10 MB on the disk
    np.save(tmp_path / "corpus.npy", X)
    queries, there = X[:100].copy(), np.load(tmp_path / "corpus.npy", mmap_mode="r")
    del X
    retrieval.search(queries, there[:5000], 10)  # what is imported and compiled does not count
    tracemalloc.start()
    found = retrieval.search(queries, there, 10, engine=Engine(memory="6 MB", threads=1))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_array_equal(found.indices[:, 0], np.arange(100))
    assert peak < 6 * 2**20


def test_the_model_maps_queries_and_corpus():
    X = rows_of(100, seed=7)
    model = make_pipeline(Normalizer(), RCA(), Normalizer()).fit(X, np.arange(100) // 2)
    found = retrieval.search(X[:10] + 0.1, X, 4, model=model).indices
    np.testing.assert_array_equal(found, by_hand(model.transform(X[:10] + 0.1), model.transform(X), "cosine")[0][:, :4])


def test_intervals_cover_the_mean_and_differences_are_paired():
    X, labels = rows_of(150, seed=8), np.arange(150) % 10
    raw = retrieval.evaluate(None, X, labels, k=10, n_bootstrap=200)
    for name, (low, high) in raw.intervals.items():
        assert low <= raw.mean[name] <= high
    none = raw.difference(raw)
    assert set(none.intervals.values()) == {(0.0, 0.0)}
    other = retrieval.evaluate(None, X[:, :3], labels, k=10, n_bootstrap=200)
    assert raw.difference(other).mean["recall@10"] == pytest.approx(raw.mean["recall@10"] - other.mean["recall@10"])
    assert raw.to_dict()["measures"]["recall@10"]["mean"] == raw.mean["recall@10"]
    assert "150 queries" in str(raw)


def test_queries_without_a_relevant_row_are_counted_and_left_out():
    X = rows_of(30)
    found = retrieval.evaluate(X[:5], X, {0: [0], 3: {3: 2.0, 4: 0.0}}, k=1, n_bootstrap=5)
    assert found.n_without_relevant == 3
    np.testing.assert_array_equal(found.queries, [0, 3])
    assert found.mean["recall@1"] == 1.0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"relevant": [[0, 99]]}, "out of range"),
        ({"relevant": [[0, 1, -1]]}, "must not be negative"),
        ({"relevant": [[0, 1, 1], [0, 1, 2]]}, "two different grades"),
        ({"relevant": np.zeros((3, 4))}, "shape"),
        ({"relevant": {}}, "nothing to measure"),
        ({"k": 100}, "Lower k"),
        ({"k": ()}, "at least one"),
        ({"confidence": 2}, "between 0 and 1"),
        ({"similarity": "manhattan"}, "similarity"),
        ({"queries": np.zeros(3)}, "positions"),
        ({"queries": [1, 1]}, "repeated"),
        ({"queries": np.ones((2, 3))}, "same columns"),
        ({"queries": np.zeros((2, 6))}, "rows of zeros"),
        ({"queries": np.full((2, 6), np.nan)}, "NaN"),
    ],
)
def test_what_is_refused(change, words):
    given = {"queries": rows_of(4), "corpus": rows_of(20), "relevant": [[0, 1], [1, 2]], "n_bootstrap": 3, **change}
    with pytest.raises(ValueError, match=words):
        retrieval.evaluate(given.pop("queries"), given.pop("corpus"), given.pop("relevant"), **given)


def test_only_queries_with_a_relevant_row_are_searched_for(monkeypatch):
    # Pairs of a few rows once made every row of the corpus a query: 10^6 x 10^6 pairs for a thousand of them.
    asked = []
    monkeypatch.setattr(
        "vicinal._retrieval.search.search_blocks", lambda *given: asked.append(len(given[0])) or search_blocks(*given)
    )
    X, pairs = rows_of(300, seed=11), [[3, 4], [100, 250], [7, 7]]
    found = retrieval.evaluate(None, X, pairs, k=5, n_bootstrap=5)
    assert asked == [4]
    assert found.queries.tolist() == [3, 4, 100, 250]
    assert found.n_without_relevant == 296
    labels = np.where(np.arange(300) < 6, np.arange(300) // 2, -1)
    for relevant in (labels, {3: {4: 2.0, 9: 1.0}, 8: [1]}):
        few = retrieval.evaluate(None, X, relevant, k=5, n_bootstrap=5)
        for number, query in enumerate(few.queries):
            alone = retrieval.evaluate([query], X, relevant, k=5, n_bootstrap=5)
            assert {name: values[number] for name, values in few.per_query.items()} == alone.mean


@pytest.mark.parametrize("engine", ["reference", "cpu", "torch"])
def test_cosines_of_very_long_and_very_short_rows(engine):
    # Squares overflow or vanish: every cosine was 1.
    if engine == "torch":
        needs("torch")
    X = rows_of(50, seed=12)
    for factor in (1e-200, 1e200):
        matches = retrieval.search(None, X * factor, 5, engine=engine)
        np.testing.assert_array_equal(matches.indices, retrieval.search(None, X, 5).indices)
        np.testing.assert_allclose(matches.scores, retrieval.search(None, X, 5).scores, rtol=1e-9)
    with pytest.raises(ValueError, match="Scale the rows"):
        retrieval.search(None, X * 1e200, 5, similarity="dot")


def test_multiples_of_a_row_tie_by_cosine_whatever_the_engine():
    X = rows_of(40, seed=13)
    X[10:20] = X[5] * np.arange(1, 11)[:, None] / 7.0
    for engine in ("reference", "cpu"):
        assert retrieval.search([5], X, 10, engine=engine).indices[0].tolist() == list(range(10, 20))


def test_half_precision_is_searched_in_single():
    X = rows_of(60, 8).astype(np.float16)
    dtypes = []

    class Model:
        def transform(self, rows):
            dtypes.append(rows.dtype)
            return rows

    found = retrieval.search(None, X, 4, model=Model())
    np.testing.assert_array_equal(found.indices, retrieval.search(None, X.astype(np.float64), 4).indices)
    assert set(dtypes) == {np.dtype(np.float32)}


def test_an_evaluation_is_shown_in_a_few_lines():
    found = retrieval.evaluate(None, rows_of(50), np.arange(50) % 5, k=1, n_bootstrap=5)
    assert "array" not in repr(found)


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"relevant": {"q0": ["d0"]}}, ValueError, "Replace names by positions"),
        ({"corpus": csr_array(rows_of(30))}, TypeError, "corpus must be a dense table"),
        ({"queries": csr_array(rows_of(3))}, TypeError, "queries must be a dense table"),
        ({"corpus": np.where(np.eye(30, 6) > 0, np.nan, 1.0)}, ValueError, "corpus contains NaN"),
        ({"corpus": np.vstack([np.zeros((1, 6)), rows_of(29)])}, ValueError, "corpus contains 1 row of zeros"),
        ({"relevant": [[0, 30]]}, ValueError, "got 1 position out of range"),
    ],
)
def test_refusals_name_what_was_passed(given, error, words):
    given = {"queries": None, "corpus": rows_of(30), "relevant": np.arange(30) % 5, "k": 3} | given
    with pytest.raises(error, match=words):
        retrieval.evaluate(**given)
