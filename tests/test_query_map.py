"""Test maps of queries alone: the ranking against literal sums, the corpus that stays as it is, exports, and the command."""

import json
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from needs import needs
from scipy.optimize import check_grad
from sklearn.base import clone
from sklearn.covariance import ledoit_wolf
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler, normalize

from vicinal import LCA, RCA, io, retrieval
from vicinal._nca.anchor_objective import anchor_objective
from vicinal.cli import main
from vicinal.cli.errors import OK, USAGE

RNG = np.random.default_rng(0)
# Two views of each of 400 things, alike in 8 of 20 columns, with a mean that all rows share.
THINGS, MEAN = RNG.normal(size=(400, 8)), np.append(np.full(8, 2.0), np.full(12, 3.0))


def view(seed):
    rng = np.random.default_rng(seed)
    return np.hstack([THINGS + 0.1 * rng.normal(size=(400, 8)), 2.0 * rng.normal(size=(400, 12))]) + MEAN


CORPUS, QUERIES = view(1), view(2)
PAIRS = np.column_stack([np.arange(400), np.arange(400)])


def adapter():
    rows = np.vstack([CORPUS, QUERIES])
    return make_pipeline(Normalizer(), RCA(), Normalizer()).fit(rows, PAIRS + np.array([0, 400]))


def test_map_is_that_of_the_expansion_about_the_mean():
    metric, C, Q = adapter(), normalize(CORPUS), normalize(QUERIES)
    A, m = metric[1].components_, C.mean(axis=0)
    model = retrieval.QueryMap(metric).fit(CORPUS)
    literal = np.array([A.T @ A @ (q - m) for q in Q])
    np.testing.assert_allclose(model.transform(QUERIES), normalize(literal), rtol=1e-10, atol=1e-12)
    lengths = [np.linalg.norm(A @ (c - m)) for c in C]
    assert model.variation_ == pytest.approx(np.std(lengths) / np.mean(lengths), rel=1e-10)
    # |A(q - c)|^2 without |A(c - m)|^2, which is the same for all rows of the corpus if the variation is 0.
    distances = np.square((Q[:5, None] - C[None]) @ A.T).sum(axis=2) - np.square(lengths)
    found = retrieval.search(QUERIES[:5], CORPUS, 20, model=model)
    np.testing.assert_array_equal(found.indices, np.argsort(distances, axis=1)[:, :20])


def test_order_is_that_of_the_metric_where_the_lengths_of_the_corpus_are_equal():
    rng = np.random.default_rng(3)
    half = normalize(rng.normal(size=(200, 5)))
    corpus = np.vstack([half, -half])  # its mean is 0
    metric = RCA().fit(corpus, np.arange(400) // 2)
    metric.components_ = np.linalg.qr(rng.normal(size=(5, 5)))[0] * 3.0  # all lengths are 3
    model = retrieval.QueryMap(metric).fit(corpus)
    assert model.variation_ < 1e-12
    queries = rng.normal(size=(30, 5))
    expected = np.argsort(metric.mahalanobis(normalize(queries), corpus), axis=1)[:, :10]
    np.testing.assert_array_equal(retrieval.search(queries, corpus, 10, model=model).indices, expected)


def test_fitted_map_is_the_regression_of_two_sided_cosines_on_the_corpus():
    metric, C, Q = adapter(), normalize(CORPUS), normalize(QUERIES)
    A, m, n = metric[1].components_, C.mean(axis=0), len(C)
    first = retrieval.QueryMap(metric).fit(CORPUS)
    model = retrieval.QueryMap(metric, fitted=True).fit(CORPUS)
    lengths = np.array([np.linalg.norm(A @ c) for c in C])
    covariance, shrinkage = ledoit_wolf(C - m, assume_centered=True)
    literal = []
    for q in Q:
        start = A.T @ A @ (q - m) / lengths.mean()
        left = np.array([(A @ q) @ (A @ c) / length - start @ c for c, length in zip(C, lengths, strict=True)])
        slope = sum((c - m) * value for c, value in zip(C, left, strict=True)) / n
        literal.append(start + (1 - shrinkage) * np.linalg.solve(covariance, slope))
    np.testing.assert_allclose(model.transform(QUERIES), normalize(literal), rtol=1e-9, atol=1e-11)
    assert model.variation_ == pytest.approx(lengths.std() / lengths.mean(), rel=1e-10)
    # Its products with the rows are nearer to the cosines of both sides than those of the expansion.
    cosines = normalize(Q @ A.T) @ normalize(C @ A.T).T
    agreement = [
        np.mean([np.corrcoef(a, b)[0, 1] for a, b in zip(cosines, of.transform(QUERIES) @ C.T, strict=True)])
        for of in (first, model)
    ]
    assert agreement[0] < agreement[1]


def test_fitted_map_keeps_the_order_where_the_lengths_of_the_images_are_equal():
    rng = np.random.default_rng(3)
    half = normalize(rng.normal(size=(200, 5)))
    corpus = np.vstack([half, -half])
    metric = RCA().fit(corpus, np.arange(400) // 2)
    metric.components_ = np.linalg.qr(rng.normal(size=(5, 5)))[0] * 3.0
    model = retrieval.QueryMap(metric, fitted=True).fit(corpus)
    assert model.variation_ < 1e-12
    queries = rng.normal(size=(30, 5))
    expected = np.argsort(metric.mahalanobis(normalize(queries), corpus), axis=1)[:, :10]
    np.testing.assert_array_equal(retrieval.search(queries, corpus, 10, model=model).indices, expected)


def test_search_maps_queries_and_leaves_the_corpus():
    model, before = retrieval.QueryMap(adapter()).fit(CORPUS), CORPUS.copy()
    expected = np.argsort(-(model.transform(QUERIES) @ normalize(CORPUS).T), axis=1)[:, :7]
    np.testing.assert_array_equal(retrieval.search(QUERIES, CORPUS, 7, model=model).indices, expected)
    np.testing.assert_array_equal(CORPUS, before)
    by_position = retrieval.search(np.arange(400), CORPUS, 7, model=model)  # the queries are rows of the corpus
    near = model.transform(CORPUS) @ normalize(CORPUS).T
    np.fill_diagonal(near, -np.inf)
    np.testing.assert_array_equal(by_position.indices, np.argsort(-near, axis=1)[:, :7])
    gain = retrieval.evaluate(QUERIES, CORPUS, PAIRS, model=model, n_bootstrap=5).mean["nDCG@10"]
    without_mean = np.linalg.multi_dot([normalize(QUERIES), model.matrix_])
    linear = retrieval.evaluate(without_mean, CORPUS, PAIRS, n_bootstrap=5).mean["nDCG@10"]
    assert gain > linear + 0.05  # rows with a common mean need (q - m)
    with pytest.raises(TypeError, match="which would map the corpus as well"):
        retrieval.search(QUERIES, CORPUS, model=make_pipeline(StandardScaler(), model))


def test_memory_maps_and_frames_give_what_arrays_give(tmp_path):
    metric = adapter()
    expected = retrieval.QueryMap(metric).fit(CORPUS.astype(np.float16))
    np.save(tmp_path / "corpus.npy", CORPUS.astype(np.float16))
    mapped = retrieval.QueryMap(metric).fit(np.load(tmp_path / "corpus.npy", mmap_mode="r"))
    np.testing.assert_allclose(mapped.transform(QUERIES), expected.transform(QUERIES), rtol=1e-6, atol=1e-9)
    frame = pd.DataFrame(CORPUS, columns=[f"c{i}" for i in range(20)])
    named = retrieval.QueryMap(metric).fit(frame).set_output(transform="pandas")
    images = named.transform(pd.DataFrame(QUERIES, columns=frame.columns))
    assert images.columns[0] == "querymap0"
    np.testing.assert_allclose(images, fitted().transform(QUERIES))
    with pytest.raises(ValueError, match="NaN"):
        retrieval.QueryMap(metric).fit(np.where(CORPUS > 5, np.nan, CORPUS))


def test_gradient_of_the_free_map_is_that_of_finite_differences():
    rng = np.random.default_rng(1)
    anchors, candidates, positives = rng.normal(size=(7, 4)), rng.normal(size=(9, 3)), rng.permutation(9)[:7]
    masked = np.zeros((7, 9), dtype=bool)
    masked[:, 0] = positives != 0
    for similarity in ("cosine", "distance"):
        settings = {"similarity": similarity, "temperature": 0.7, "fixed": True}

        def both(vector, settings=settings):
            return anchor_objective(vector.reshape(3, 4), anchors, candidates, positives, masked, **settings)

        A = rng.normal(size=12)
        error = check_grad(lambda a: both(a).value, lambda a: both(a).gradient.ravel(), A)
        assert error < 1e-6 * np.linalg.norm(both(A).gradient)


@pytest.mark.parametrize("kind", ["queries", "pairs", "labels"])
def test_adapt_learns_maps_of_queries_alone(kind):
    both = np.vstack([CORPUS, QUERIES])
    given = {
        "queries": (CORPUS, PAIRS, {"queries": QUERIES}),
        "pairs": (both, PAIRS + np.array([0, 400]), {}),
        "labels": (both, np.tile(np.arange(400), 2), {}),
    }[kind]
    corpus, relevant, more = given
    result = retrieval.adapt(corpus, relevant, side="query", **more)
    assert set(result.models) == {"rca", "rca-fitted", "anchors", "anchors-fitted", "free"}
    assert all(isinstance(model, retrieval.QueryMap) for model in result.models.values())
    assert result.best != "raw"
    assert result.gain.intervals["nDCG@10"][0] > 0.3
    assert f"its learned images vary by {100 * result.variation:.0f} %" in str(result)
    assert (result.side, result.to_dict()["side"]) == ("query", "query")
    assert 0 <= result.raw_kept < 1
    assert not np.array_equal(result.models["free"].matrix_, result.models["anchors"].matrix_)


def test_adapt_keeps_the_raw_rows_unless_an_adapter_gains_two_standard_errors():
    rng = np.random.default_rng(5)
    things = rng.normal(size=(150, 30))
    corpus, queries = (things + 0.8 * rng.normal(size=(150, 30)) for _ in range(2))
    for side in ("both", "query"):
        result = retrieval.adapt(corpus, PAIRS[:150], queries=queries, side=side)
        assert (result.best, result.measured, result.model, result.variation) == ("raw", "raw", None, None)
        assert "no adapter helps on these pairs (by two standard errors of nDCG@10)" in result.verdict


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="side must be one of 'both', 'query', got 'left'"):
        retrieval.adapt(CORPUS, PAIRS, side="left")
    with pytest.raises(TypeError, match=r"metric must be a fitted metric .* got StandardScaler and RCA"):
        retrieval.QueryMap(make_pipeline(StandardScaler(), RCA())).fit(CORPUS)
    with pytest.raises(TypeError, match="must be a fitted metric"):
        retrieval.QueryMap(RCA()).fit(CORPUS)
    with pytest.raises(ValueError, match="X must have the 20 columns of the metric, got 3"):
        retrieval.QueryMap(adapter()).fit(CORPUS[:, :3])


# -- exports -----------------------------------------------------------------------------------------------------------


def fitted():
    return retrieval.QueryMap(adapter()).fit(CORPUS)


def test_model_file_gives_the_same_map(tmp_path):
    model = fitted()
    io.save(model, tmp_path / "q.vicinal")
    same = io.load(tmp_path / "q.vicinal")
    np.testing.assert_array_equal(same.transform(QUERIES), model.transform(QUERIES))
    assert same.variation_ == model.variation_
    np.testing.assert_array_equal(same.metric.transform(QUERIES), model.metric.transform(QUERIES))
    assert isinstance(clone(model), retrieval.QueryMap)


def test_numpy_and_torch():
    model = fitted()
    Z = QUERIES
    for A, b in io.to_numpy(model, dtype=np.float64):
        Z = normalize(Z) if A is None else Z @ A.T + b
    np.testing.assert_allclose(Z, model.transform(QUERIES), rtol=1e-10, atol=1e-12)
    torch = needs("torch")
    images = io.to_torch(model, dtype=torch.float64)(torch.from_numpy(QUERIES)).detach().numpy()
    np.testing.assert_allclose(images, model.transform(QUERIES), rtol=1e-10, atol=1e-12)


def test_onnx_has_the_offset():
    needs("onnx")
    runtime = needs("onnxruntime")
    model = fitted()
    session = runtime.InferenceSession(io.to_onnx(model).SerializeToString(), providers=["CPUExecutionProvider"])
    (images,) = session.run(None, {"X": QUERIES.astype(np.float32)})
    np.testing.assert_allclose(images, model.transform(QUERIES), atol=2e-4)


def test_faiss_maps_queries_and_a_document_that_is_added_later_stays_as_it_is():
    faiss = needs("faiss")
    model = fitted()
    transform = io.to_faiss(model)
    assert not isinstance(transform, faiss.Index)  # the add of an IndexPreTransform maps documents, too
    index = faiss.IndexFlatIP(20)
    index.add(normalize(CORPUS[:399]).astype(np.float32))
    document = normalize(CORPUS[399:]).astype(np.float32)
    index.add(document)
    np.testing.assert_array_equal(index.reconstruct(399), document[0])
    queries = normalize(QUERIES).astype(np.float32)
    found = index.search(transform.apply(queries), 5)[1]
    expected = retrieval.search(QUERIES, CORPUS, 5, model=model).indices
    assert np.mean(found == expected) > 0.99
    assert 399 in found[399]
    with pytest.raises(ValueError, match="index must be None for a QueryMap"):
        io.to_faiss(model, index)


def test_sentence_transformers_map_the_route_of_queries(tmp_path):
    sentence_transformers, tokenizers = needs("sentence_transformers", "tokenizers")
    modules = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
    words = [f"word{i}" for i in range(400)]
    vocabulary = {word: i for i, word in enumerate(words)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="word0"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    embedding = modules.StaticEmbedding(tokenizer, embedding_weights=CORPUS.astype(np.float32))
    model = fitted()
    plain = sentence_transformers.SentenceTransformer(modules=[embedding], device="cpu")
    whole = sentence_transformers.SentenceTransformer(
        modules=[*plain, *io.to_sentence_transformers(model)], device="cpu"
    )
    whole.save(str(tmp_path / "model"))
    for each in (whole, sentence_transformers.SentenceTransformer(str(tmp_path / "model"), device="cpu")):
        np.testing.assert_allclose(each.encode_query(words), model.transform(CORPUS), atol=2e-4)
        np.testing.assert_allclose(each.encode_document(words), normalize(CORPUS), atol=1e-5)
        np.testing.assert_allclose(each.encode(["word7"]), normalize(CORPUS[7:8]), atol=1e-5)


# -- the command -------------------------------------------------------------------------------------------------------


def test_command_writes_a_map_of_queries_that_neighbors_uses(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.save("corpus.npy", CORPUS)
    np.save("queries.npy", QUERIES)
    pd.DataFrame(PAIRS, columns=["query", "row"]).to_csv("pairs.csv", index=False)
    given = ["adapt", "corpus.npy", "--queries", "queries.npy", "--pairs", "pairs.csv", "--side", "query"]
    more = ["--methods", "rca", "-o", "q.vicinal", "--report", "q.html", "--json", "-q"]
    assert main([*given, *more]) == OK
    summary = json.loads(capsys.readouterr().out)
    assert summary["best"] in ("rca", "rca-fitted")
    assert summary["side"] == "query"
    model = io.load("q.vicinal")
    assert summary["variation"] == pytest.approx(model.variation_)
    assert "only the queries are mapped" in Path("q.html").read_text()
    assert main(["neighbors", "q.vicinal", "corpus.npy", "--query", "queries.npy", "-k", "3", "-q"]) == OK
    listed = pd.read_csv(StringIO(capsys.readouterr().out))
    expected = retrieval.search(QUERIES, CORPUS, 3, model=model)
    np.testing.assert_array_equal(listed["neighbor"], expected.indices.ravel())
    np.testing.assert_allclose(listed["distance"], np.sqrt(2 - 2 * expected.scores.ravel()), atol=1e-6)
    assert main(["neighbors", "q.vicinal", "corpus.npy", "-q"]) == USAGE
    assert "maps queries and not the rows of DATA" in capsys.readouterr().err
    assert main(["inspect", "q.vicinal"]) == OK
    assert "QueryMap in q.vicinal" in capsys.readouterr().out


def test_pipelines_and_densities_are_no_metrics():
    with pytest.raises(TypeError, match="got no metric"):
        retrieval.QueryMap(make_pipeline(Normalizer())).fit(CORPUS)
    lca = LCA().fit(CORPUS)
    assert retrieval.QueryMap(lca).fit(CORPUS).transform(QUERIES).shape == QUERIES.shape
