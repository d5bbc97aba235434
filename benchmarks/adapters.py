"""Compare adapters for embeddings: whether a map that is learned from pairs searches better than the raw rows.

    VICINAL_DATA=/path/to/data python benchmarks/adapters.py few [--sets usps,yale] [--draws 20] [--jobs 16]
    VICINAL_DATA=/path/to/data python benchmarks/adapters.py side [--sets usps,glove] [--quick] [--jobs 8 --threads 2]
    python benchmarks/adapters.py speed [--sets evaluate,rca] [--quick]
    python benchmarks/adapters.py race [--quick] [--jobs 7 --threads 2]
    VICINAL_DATA=/path/to/data python benchmarks/adapters.py guard [--sets usps,glove] [--draws 20] [--jobs 16]
    VICINAL_DATA=/path/to/data python benchmarks/adapters.py query [--sets usps,glove] [--draws 10] [--jobs 16]
    VICINAL_TEXTS=texts.npz python benchmarks/adapters.py texts [--draws 5] [--jobs 16]
    python benchmarks/adapters.py tables

guard: compares AnchorNCA() from 50, 200 and 1,000 pairs with the raw rows, draw by draw.  query: compares maps of queries alone with
those of both sides, from 500 pairs by `adapt`.  texts: compares adapters on docstrings (texts.py), which are learned on numpy, pandas and
statsmodels and measured on scipy and scikit-learn.
few: compares RCA(shrinkage="cv") from 30, 100 and 500 pairs with the raw rows, draw by draw (sets with at least 256 columns).
side: compares all methods on one split of each set.  speed: compares the times of `evaluate` and of NumPy, and measures RCA, in one
run.  race: measures the time until AnchorNCA reaches the best held-out nDCG@10 of an adapter trained in torch.  tables: prints the
tables of docs/benchmarks.md.
The cases of all parts but speed and tables run in `--jobs` processes, each on `--threads` separate cores.
Each part writes benchmarks/results/adapters-PART.json after every result, so that an interrupted run loses nothing.

Rows of all sets are compared by cosine. The sets are GloVe words (a word belongs together with its forms in -s, -ed and -ing), MNIST
and USPS pixels (rows of the same digit), Yale B and Olivetti faces at 32 x 32 (rows of the same person), and a synthetic set of 768
columns. An object of the synthetic set consists of 32 standard normal numbers that are mapped by a random 32 x 768 matrix. Each of
three views of an object adds 64 nuisance directions, which are common to all rows and three times as large, and white noise of standard
deviation 1.
"""

import argparse
import json
import multiprocessing
import os
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache, partial
from pathlib import Path

import numpy as np
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, normalize

from vicinal import NCA, RCA, AnchorNCA, retrieval

RESULTS = Path(__file__).parent / "results"
SIZES = (30, 100, 500)
WIDE = ("usps", "mnist", "yale", "olivetti", "synthetic")
CLASSES = ("usps", "mnist", "yale", "olivetti")
METHODS = (
    "raw cosine", "whitening", "top 3 directions removed", "RCA, 500 pairs", "AnchorNCA, 500 pairs",
    "torch adapter, 500 pairs", "LDA, labels", "RCA, labels", "NCA, labels",
)  # fmt: skip
RATES = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1)


def in_processes(work, tasks, jobs, threads):
    """Yield each task and the result of `work`, as they finish: in this process, or in `jobs` others on separate cores."""
    if jobs == 1:
        yield from ((task, work(*task)) for task in tasks)
        return
    # This is set before the processes import NumPy, because vicinal and the BLAS libraries read it at import.
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = str(threads)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, context, take_cores, (context.Value("i", 0), threads)) as pool:
        running = {pool.submit(work, *task): task for task in tasks}
        for done in as_completed(running):
            yield running[done], done.result()


def take_cores(started, threads):
    """Keep a new process on the next cores of the machine."""
    with started.get_lock():
        first = started.value * threads
        started.value += 1
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[(first + i) % len(cores)] for i in range(threads)})


@cache
def load(name):
    """Return the rows of a set and the group of each row (-1 for a row in no group)."""
    if name == "synthetic":
        rng = np.random.default_rng(0)
        thing = np.repeat(np.arange(2000), 3)
        X = rng.normal(size=(2000, 32))[thing] @ rng.normal(size=(32, 768))
        X += 3.0 * rng.normal(size=(6000, 64)) @ rng.normal(size=(64, 768)) + rng.normal(size=(6000, 768))
        return X.astype(np.float32), thing
    folder = Path(os.environ["VICINAL_DATA"])
    if name == "glove":
        return glove(np.load(folder / "glove_100d_100k_int8.npz"))
    if name in ("usps", "mnist"):
        data = np.load(folder / f"{name}.npz")
        some = np.random.default_rng(0).permutation(len(data["X_train"]))[:6000]
        X = data["X_train"][some].astype(np.float32) - (-1000 if name == "usps" else 0)
        return X, data["y_train"][some].astype(np.int64)
    if name == "yale":
        data = np.load(folder / "yaleb_32x32.npz")
        return data["X"].astype(np.float32), data["y"].astype(np.int64)
    data = np.load(folder / "olivetti_faces.npz")
    X = data["X"].reshape(-1, 32, 2, 32, 2).mean(axis=(2, 4)).reshape(len(data["X"]), -1)
    return X.astype(np.float32), np.repeat(np.arange(40), 10)


def glove(data):
    words = data["words"].tobytes().decode("utf-8").split("\n")[:30_000]
    place = {word: i for i, word in enumerate(words)}
    group = np.full(len(words), -1)
    for i, word in enumerate(words):
        forms = [place[word + end] for end in ("s", "ed", "ing") if word + end in place]
        if word.isalpha() and len(word) > 3 and forms and group[i] < 0:
            group[[i, *(form for form in forms if group[form] < 0)]] = i
    return data["X"][: len(words)].astype(np.float32) * 0.032, group


def halves(y, classes, rng):
    """Return two halves: both have rows of every class, or each has whole groups; rows in no group go to both."""
    if classes:
        return np.array_split(rng.permutation(len(y)), 2)
    groups = np.unique(y[y >= 0])
    first = rng.permutation(groups)[: len(groups) // 2]
    return [np.flatnonzero((y < 0) | (np.isin(y, first) == side)) for side in (True, False)]


def draw_pairs(y, count, rng):
    pairs = []
    known = np.flatnonzero(y >= 0)
    while len(pairs) < count:
        one = rng.choice(known)
        mates = np.flatnonzero(y == y[one])
        if len(mates) > 1:
            pairs.append((one, rng.choice(mates[mates != one])))
    return np.array(pairs)


def judge(X, y, queries, model=None):
    return retrieval.evaluate(queries, X, y, model=model, n_bootstrap=20, depth=10).mean


def few(sets, draws, jobs, threads):
    found = earlier("few", sets)
    tasks = [(name, draw) for draw in range(draws) for name in sets]
    for (name, draw), rows in in_processes(one_draw, tasks, jobs, threads):
        for size, row in rows.items():
            known = found.setdefault(name, {}).setdefault(str(size), [])
            known.append(row)
            gain, error = gain_of(known)
            print(f"{name:10} {size:4} pairs, draw {draw}, {len(known)} known: mean gain {gain.mean():+.4f} (se {error:.4f}), "
                  f"worst {gain.min():+.4f}", flush=True)  # fmt: skip
        keep("few", found)


def one_draw(name, draw):
    """Return recall@10 and precision@10 of the raw rows and under RCA, and the share of raw kept, by number of pairs."""
    X, y = load(name)
    rng = np.random.default_rng(draw)
    fit, test = halves(y, name in CLASSES, rng)
    asked = rng.permutation(np.flatnonzero(np.isin(y[test], y[test][y[test] >= 0])))[:300]
    raw, rows = judge(X[test], y[test], asked), {}
    for size in SIZES:
        model = make_pipeline(Normalizer(), RCA(shrinkage="cv"), Normalizer())
        model.fit(X[fit], draw_pairs(y[fit], size, rng))
        mine = judge(X[test], y[test], asked, model)
        row = [raw["recall@10"], mine["recall@10"], raw["precision@10"], mine["precision@10"], model[1].shrinkage_]
        rows[size] = [round(float(value), 5) for value in row]
    return rows


def drawn(name, draw, n_pairs):
    """Return the rows to learn from and pairs of them, the rows to search in with their groups, and the queries among these."""
    X, y = load(name)
    rng = np.random.default_rng(draw)
    fit, test = halves(y, name in CLASSES, rng)
    asked = rng.permutation(np.flatnonzero(np.isin(y[test], y[test][y[test] >= 0])))[:300]
    return X[fit], draw_pairs(y[fit], n_pairs, rng), X[test], y[test], asked


def by_draws(part, work, tasks, jobs, threads):
    """Run the tasks (name, draw, ...) that are not in the file of this part, and keep the result of each of them."""
    results = earlier(part, ())
    known = {(name, draw) for name, draws in results.items() for draw in draws}
    tasks = [task for task in tasks if (task[0], str(task[1])) not in known]
    for (name, draw, *_), rows in in_processes(work, tasks, jobs, threads):
        results.setdefault(name, {})[str(draw)] = rows
        print(name, draw, rows, flush=True)
        keep(part, results)


GUARD_SIZES = (50, 200, 1000)


def one_guard(name, draw):
    """Return nDCG@10 of the raw rows and under AnchorNCA from each number of pairs, and what AnchorNCA has chosen."""
    X, pairs, corpus, y, asked = drawn(name, draw, max(GUARD_SIZES))
    rows = {"raw": round(judge(corpus, y, asked)["nDCG@10"], 5)}
    for size in GUARD_SIZES:
        model = make_pipeline(Normalizer(), AnchorNCA(random_state=draw), Normalizer())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X, anchornca__pairs=pairs[:size])
        rows[str(size)] = [round(judge(corpus, y, asked, model)["nDCG@10"], 5), model[1].chosen_]
    return rows


def one_query(name, draw):
    """Return nDCG@10 of the raw rows, under maps of both sides and of queries alone, and of the one that `adapt` chooses."""
    X, pairs, corpus, y, asked = drawn(name, draw, 500)
    result = retrieval.adapt(X, pairs, side="query", random_state=draw)

    def score(model):
        return round(judge(corpus, y, asked, model)["nDCG@10"], 5)

    rows = {"raw": score(None), "chosen": result.best}
    for method, model in result.models.items():
        rows |= {f"{method}, query": score(model), f"{method}, variation": round(model.variation_, 3)}
        if method in ("rca", "anchors"):
            rows[f"{method}, both"] = score(model.metric)
    return rows | {"adapt": rows["raw"] if result.best == "raw" else rows[f"{result.best}, query"]}


TEXT_SIZES = (50, 200, 500, 2000)


def one_text(name, draw, size):
    """Return recall@10 and nDCG@10 of first lines that search their documents in packages that no adapter has seen."""
    data = np.load(os.environ["VICINAL_TEXTS"])
    train = np.isin(data["package"], ("numpy", "pandas", "statsmodels"))
    Q, D = (normalize(data[key]).astype(np.float32) for key in ("queries", "documents"))
    mine = np.random.default_rng(draw).permutation(np.flatnonzero(train))
    used, n = mine[:size], int((~train).sum())
    pairs, stacked = np.column_stack([used, used]), np.vstack([D[train], Q[used]])
    own = np.searchsorted(np.flatnonzero(train), used)
    alike = np.column_stack([int(train.sum()) + np.arange(size), own])
    labels = np.full(len(stacked), -1)
    labels[alike[:, 0]] = labels[alike[:, 1]] = np.arange(size)

    def unit(method):
        return make_pipeline(Normalizer(), method, Normalizer())

    def anchors():
        model = AnchorNCA(random_state=draw).fit(D, pairs=pairs, queries=Q)
        return make_pipeline(Normalizer(), model, Normalizer().fit(model.transform(D[:1])))

    rca = unit(RCA(shrinkage="cv")).fit(stacked, alike)
    both = anchors()
    methods = {
        "raw": lambda: None,
        "whitening": lambda: unit(whitened(D[train])),
        "LDA, a class per pair": lambda: unit(LinearDiscriminantAnalysis()).fit(
            stacked[labels >= 0], labels[labels >= 0]
        ),
        "logistic on products": lambda: FirstTable(logistic_weights(Q[used], D[used], draw)),
        "query only, SGD": lambda: FirstTable(query_matrix(Q[used], D[used], draw)),
        "RCA": lambda: rca,
        "AnchorNCA": lambda: both,
        "RCA, query only": lambda: retrieval.QueryMap(rca).fit(D[train]),
        "AnchorNCA, query only": lambda: retrieval.QueryMap(both).fit(D[train]),
        "adapt": lambda: retrieval.adapt(D, pairs, queries=Q, random_state=draw).model,
        "adapt, query only": lambda: retrieval.adapt(D, pairs, queries=Q, side="query", random_state=draw).model,
    }
    rows, wanted = {}, np.column_stack([np.arange(n)] * 2)
    for method, make in methods.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = make()
        asked = Q[~train]
        if isinstance(model, FirstTable):
            asked, model = asked @ model.matrix.T, None
        mean = retrieval.evaluate(asked, D[~train], wanted, model=model, n_bootstrap=2, depth=10).mean
        rows[method] = [round(mean["recall@10"], 4), round(mean["nDCG@10"], 4)]
    return rows


class FirstTable:
    """A matrix that is applied to queries alone."""

    def __init__(self, matrix):
        self.matrix = matrix


def logistic_weights(Q, D, seed):
    """Return the diagonal of weights by which a logistic regression tells products of pairs from those of random rows."""
    wrong = np.random.default_rng(seed).permutation(len(D))
    features = np.vstack([Q * D, Q * D[wrong]]) * Q.shape[1]
    weights = LogisticRegression(max_iter=1000).fit(features, np.repeat([1, 0], len(Q))).coef_[0]
    return np.diag(weights).astype(np.float32)


def query_matrix(Q, D, seed, epochs=30):
    """Return a matrix of queries, from the identity, by SGD on (1 - cosine) of pairs and (cosine)_+ of random rows."""
    import torch

    torch.manual_seed(seed)
    rng, W = np.random.default_rng(seed), torch.eye(Q.shape[1], requires_grad=True)
    optimiser = torch.optim.SGD([W], lr=0.1)
    for _ in range(epochs):
        order = rng.permutation(len(Q))
        for part in np.array_split(order, max(len(Q) // 32, 1)):
            images = torch.nn.functional.normalize(torch.from_numpy(Q[part]) @ W.T, dim=1)
            near = (images * torch.from_numpy(D[part])).sum(dim=1)
            far = (images * torch.from_numpy(D[rng.integers(len(D), size=len(part))])).sum(dim=1)
            loss = (1 - near).mean() + far.clamp(min=0).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return W.detach().numpy()


def gain_of(rows):
    """Return the gains in recall@10 of some draws, and the standard error of their mean."""
    gain = np.array(rows)[:, 1] - np.array(rows)[:, 0]
    return gain, gain.std(ddof=1) / len(gain) ** 0.5 if len(gain) > 1 else 0.0


def keep(part, found):
    (RESULTS / f"adapters-{part}.json").write_text(json.dumps(found, indent=1))


def without_top(X, n=3):
    pca = PCA(n).fit(X)
    return FunctionTransformer(
        lambda rows: (rows - pca.mean_) - (rows - pca.mean_) @ pca.components_.T @ pca.components_
    )


def whitened(X):
    pca = PCA(min(len(X) // 4, X.shape[1], 256), whiten=True).fit(X)
    return FunctionTransformer(pca.transform)


def gain_of_pairs(X, pairs, A):
    """Return the nDCG@10 when the first rows of pairs search for their partners among all second rows, by cosine."""
    left, right = (normalize(X[pairs[:, side]] @ A.T.astype(X.dtype)) for side in (0, 1))
    near = left @ right.T
    place = (near > np.diag(near)[:, None]).sum(axis=1)
    return float(np.where(place < 10, 1.0 / np.log2(2.0 + place), 0.0).mean())


def torch_adapter(X, pairs, start, held, rates=RATES, temperature=0.05):
    """Return a linear map trained in torch: Adam, batches of 512, the best of some learning rates, early stopping.

    Returns the map, its nDCG@10 on the held-out pairs, and the seconds of the best learning rate until then.
    """
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    rows, best = torch.from_numpy(X), (None, -1.0, 0.0)
    size = float(np.sqrt(np.mean(start**2)))
    for rate in rates:
        A, rng = torch.tensor(start, dtype=torch.float32, requires_grad=True), np.random.default_rng(0)
        optimiser, idle, top, seconds = torch.optim.Adam([A], lr=rate * size), 0, -1.0, 0.0
        for _ in range(30):
            began = time.perf_counter()
            for part in np.array_split(rng.permutation(len(pairs)), max(len(pairs) // 512, 1)):
                a, b = (torch.nn.functional.normalize(rows[pairs[part, side]] @ A.T, dim=1) for side in (0, 1))
                loss = torch.nn.functional.cross_entropy(a @ b.T / temperature, torch.arange(len(part)))
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
            seconds += time.perf_counter() - began
            now = gain_of_pairs(X, held, A.detach().numpy())
            idle = 0 if now > top + 1e-4 else idle + 1
            top = max(top, now)
            if now > best[1]:
                best = (A.detach().numpy().copy(), now, seconds)
            if idle >= 3:
                break
    return best


RANK = 128


def views(n_pairs, n_features=768):
    """Return two views of each thing of the synthetic set, of unit length.

    Pairs to learn from, held-out pairs, and a random start.
    """
    rng = np.random.default_rng(0)

    def normal(*shape):
        return rng.standard_normal(size=shape, dtype=np.float32)

    X = np.repeat(normal(n_pairs, 32), 2, axis=0) @ normal(32, n_features)
    X += 3.0 * normal(2 * n_pairs, 64) @ normal(64, n_features)
    X = normalize(X + normal(*X.shape), copy=False)
    pairs, n_held = np.arange(2 * n_pairs).reshape(n_pairs, 2), min(n_pairs // 10, 1000)
    start = np.linalg.qr(normal(n_features, RANK))[0].T
    return X, pairs[n_held:], pairs[:n_held], start


STARTS = ("the same start", "its own start")


def run_of(how, n_pairs):
    """Return the held-out nDCG@10 and the seconds after each round, of the torch adapter or of AnchorNCA."""
    X, train, held, start = views(n_pairs)
    if how not in STARTS:
        return torch_adapter(X, train, start, held, (how,))[1:]
    model = AnchorNCA(RANK, init=start if how == STARTS[0] else "rca", random_state=0, max_iter=1)
    visited, began = [], 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X[:2000], pairs=np.arange(2000).reshape(1000, 2))  # loads the modules and kernels of the first use
        model.set_params(max_iter=30, callback=lambda A, _: visited.append((time.perf_counter() - began, A.copy())))
        began = time.perf_counter()
        model.fit(X, pairs=train)
    return [(gain_of_pairs(X, held, A.reshape(RANK, -1)), seconds) for seconds, A in visited]


def race(n_pairs, jobs, threads):
    """Measure the seconds until AnchorNCA and the torch adapter reach the best held-out nDCG@10 of the latter."""
    found = earlier("race", ())
    tasks = [(how, n_pairs) for how in (*STARTS, *RATES)]
    runs = {how: run for (how, _), run in in_processes(run_of, tasks, jobs, threads)}
    goal = max(runs[rate][0] for rate in RATES)
    seconds, rate = min((runs[rate][1], rate) for rate in RATES if runs[rate][0] == goal)  # the fastest of the best
    here = found[f"{n_pairs} pairs"] = {
        "torch": {"nDCG@10": round(goal, 4), "seconds": round(seconds, 2), "learning rate": rate},
        "runs of torch": {str(rate): [round(value, 4) for value in runs[rate]] for rate in RATES},
    }
    for start in STARTS:
        mine = next((took for gain, took in runs[start] if gain >= goal), None)
        here[f"AnchorNCA from {start}"] = {
            "seconds to the same": mine and round(mine, 2),
            "nDCG@10 at its end": round(runs[start][-1][0], 4),
            "rounds": [[round(gain, 4), round(took, 2)] for gain, took in runs[start]],
        }
    print(json.dumps(found, indent=1))
    keep("race", found)


def linear(A):
    return FunctionTransformer(lambda rows: rows @ A.T.astype(rows.dtype))


def earlier(part, sets):
    """Return the results of an earlier run on other sets."""
    path = RESULTS / f"adapters-{part}.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    return {name: rows for name, rows in known.items() if name not in sets}


def methods_of(X, y, pairs):
    """Return the methods by name: the lines of code that a user writes, and a function that creates the model."""
    U, rank = normalize(X), min(64, X.shape[1])

    def start():  # used by two methods, and part of their times
        return RCA(rank, shrinkage="cv").fit(U, pairs).components_

    def unit(method):
        return make_pipeline(Normalizer(), method, Normalizer())

    return {
        "raw cosine": (0, lambda: None),
        "whitening": (2, lambda: unit(whitened(U))),
        "top 3 directions removed": (3, lambda: unit(without_top(U))),
        "RCA, 500 pairs": (1, lambda: unit(RCA(shrinkage="cv")).fit(X, pairs)),
        "AnchorNCA, 500 pairs": (1, lambda: unit(AnchorNCA(rank, init=start(), random_state=0).fit(U, pairs=pairs))),
        "torch adapter, 500 pairs": (25, lambda: unit(linear(torch_adapter(U, pairs[50:], start(), pairs[:50])[0]))),
        "LDA, labels": (1, lambda: unit(LinearDiscriminantAnalysis()).fit(X, y)),
        "RCA, labels": (1, lambda: unit(RCA()).fit(X, y)),
        "NCA, labels": (1, lambda: unit(NCA(32, solver="stochastic", max_iter=20, random_state=0)).fit(X, y)),
    }


def one_method(name, method, quick):
    """Return the measures of a search under a method, the seconds of its fit, and its lines of code."""
    X, y = load(name)
    rng = np.random.default_rng(0)
    fit, test = halves(y, name in CLASSES, rng)
    if quick:
        fit, test = fit[:1500], test[:1500]
    asked = rng.permutation(np.flatnonzero(y[test] >= 0))[:300]
    lines, make = methods_of(X[fit], y[fit], draw_pairs(y[fit], 500, rng))[method]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        began = time.perf_counter()
        model = make()
    took = time.perf_counter() - began
    mean = judge(X[test], y[test], asked, model)
    measures = {key: round(mean[key], 4) for key in ("recall@1", "recall@10", "precision@10", "nDCG@10")}
    return {**measures, "fit_seconds": round(took, 2), "lines": lines}


def side(sets, quick, jobs, threads):
    table = earlier("side", sets)
    tasks = [
        (name, method, quick)
        for method in (METHODS if jobs == 1 else reversed(METHODS))  # in parallel, the slowest ones first
        for name in sets
        if name in CLASSES or "labels" not in method
    ]
    for (name, method, _), row in in_processes(one_method, tasks, jobs, threads):
        known = {**table.get(name, {}), method: row}
        table[name] = {method: known[method] for method in METHODS if method in known}
        print(name, method, row, flush=True)
        keep("side", table)


def speed(quick, parts):
    rng, found = np.random.default_rng(0), earlier("speed", ())

    def note(name, value):
        found[name + (", quick" if quick else "")] = value
        print(name, value, flush=True)
        keep("speed", found)

    def timed(work):
        """Return the wall time and the processor time in seconds; other work on the machine changes the latter little."""
        began, used = time.perf_counter(), time.process_time()
        work()
        return round(time.perf_counter() - began, 3), round(time.process_time() - used, 3)

    n, m = (20_000, 300) if quick else (100_000, 1000)
    X = normalize(rng.standard_normal(size=(n, 768), dtype=np.float32))
    if "evaluate" in parts:
        Q = normalize(rng.standard_normal(size=(m, 768), dtype=np.float32))
        wanted = np.column_stack([np.arange(m), np.arange(m)])
        laps = {"numpy": [], "evaluate": []}
        for _ in range(4):  # interleaved; the first round of each may compile and load, and the best round counts
            laps["numpy"].append(timed(lambda: np.argpartition(-(Q @ X.T), 99, axis=1)[:, :100]))
            laps["evaluate"].append(timed(lambda: retrieval.evaluate(Q, X, wanted, n_bootstrap=100)))
        for place, what in enumerate(("by the clock", "of the processor")):
            mine, numpys = (min(lap[place] for lap in laps[name]) for name in ("evaluate", "numpy"))
            note(f"evaluate, {m} queries on {n} x 768, over NumPy, {what}", round(mine / numpys, 2))
        note("laps, s by the clock and of the processor", laps)
    for shrinkage in ("auto", "cv") if "rca" in parts else ():
        pairs = rng.permutation(20_000)[:800].reshape(400, 2)
        fit = partial(RCA(shrinkage=shrinkage).fit, X[:20_000], pairs)
        took = [timed(fit) for _ in range(3)]
        note(f"RCA, {shrinkage}, 20,000 x 768, 400 pairs, laps, s by the clock and of the processor", took)


def tables():
    """Print the results as the tables of docs/benchmarks.md."""
    few, sides = earlier("few", ()), earlier("side", ())
    print(
        "| set | pairs | draws | raw recall@10 | RCA recall@10 | mean gain (standard error) | worst draw | raw kept |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name, sizes in few.items():
        for size, rows in sizes.items():
            (gain, error), rows = gain_of(rows), np.array(rows)
            print(f"| {name} | {size} | {len(rows)} | {rows[:, 0].mean():.4f} | {rows[:, 1].mean():.4f} | {gain.mean():+.4f} ({error:.4f}) "
                  f"| {gain.min():+.4f} | {100 * rows[:, 4].mean():.0f} % |")  # fmt: skip
    print(
        "\n| set | method | recall@1 | recall@10 | precision@10 | nDCG@10 | fit, s | lines |\n|---|---|---|---|---|---|---|---|"
    )
    for name, methods in sides.items():
        for method, found in methods.items():
            cells = [f"{found[key]:.4f}" for key in ("recall@1", "recall@10", "precision@10", "nDCG@10")]
            print(f"| {name} | {method} | {' | '.join(cells)} | {found['fit_seconds']} | {found['lines']} |")


def draws_of(part):
    return {name: list(draws.values()) for name, draws in earlier(part, ()).items()}


def change(rows, key, other="raw"):
    """Return the mean difference of a figure of some draws and another one, and its standard error, as text."""
    gain = np.array([row[key] - row[other] for row in rows])
    return f"{gain.mean():+.4f} ({gain.std(ddof=1) / len(gain) ** 0.5:.4f})" if len(gain) > 1 else f"{gain[0]:+.4f}"


def tables_of_draws():
    """Print the tables of guard, query and texts."""
    print(
        "\n| set | draws | raw nDCG@10 | pairs | mean change (standard error) | worst draw | raw kept, of all draws |"
    )
    print("|---|---|---|---|---|---|---|")
    for name, rows in draws_of("guard").items():
        for size in map(str, GUARD_SIZES):
            flat = [{"raw": row["raw"], size: row[size][0]} for row in rows]
            worst = min(row[size] - row["raw"] for row in flat)
            kept = sum(row[size][1] == "raw" for row in rows)
            raw = np.mean([row["raw"] for row in rows])
            print(f"| {name} | {len(rows)} | {raw:.4f} | {size} | {change(flat, size)} | {worst:+.4f} | {kept} |")
    print("\n| set | draws | raw nDCG@10 | map | both sides | queries alone | share of the gain | variation |")
    print("|---|---|---|---|---|---|---|---|")
    for name, rows in draws_of("query").items():
        raw = np.mean([row["raw"] for row in rows])
        for method in ("rca", "rca-fitted", "anchors", "anchors-fitted", "free"):
            both = "rca, both" if method.startswith("rca") else "anchors, both"
            gains = [np.mean([row[key] for row in rows]) - raw for key in (both, f"{method}, query")]
            share = f"{100 * gains[1] / gains[0]:.0f} %" if gains[0] >= 0.02 else ""
            variation = np.mean([row[f"{method}, variation"] for row in rows])
            print(f"| {name} | {len(rows)} | {raw:.4f} | {method} | {change(rows, both)} | {change(rows, f'{method}, query')} | {share} | "
                  f"{variation:.2f} |")  # fmt: skip
        kept = sum(row["chosen"] == "raw" for row in rows)
        sides = [
            row[f"{row['chosen'].split('-')[0].replace('free', 'anchors')}, both"]
            for row in rows
            if row["chosen"] != "raw"
        ]
        gain = np.mean(sides) - np.mean([row["raw"] for row in rows if row["chosen"] != "raw"]) if sides else 0.0
        share = (
            f"{100 * np.mean([row['adapt'] - row['raw'] for row in rows if row['chosen'] != 'raw']) / gain:.0f} %, "
            if gain >= 0.02
            else ""
        )
        print(
            f"| {name} | {len(rows)} | {raw:.4f} | chosen by `adapt` | | {change(rows, 'adapt')} | {share}raw kept: {kept} | |"
        )
    texts = draws_of("texts")
    print("\n| method | " + " | ".join(f"recall@10, {name} | nDCG@10, {name}" for name in texts) + " |")
    print("|---" * (1 + 2 * len(texts)) + "|")
    for method in next(iter(texts.values()))[0] if texts else ():
        cells = []
        for rows in texts.values():
            for place in (0, 1):
                flat = [{"raw": row["raw"][place], "it": row[method][place]} for row in rows]
                cells.append(f"{flat[0]['raw']:.4f}" if method == "raw" else change(flat, "it"))
        print(f"| {method} | {' | '.join(cells)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("few", "side", "guard", "query", "texts", "speed", "race", "tables"))
    parser.add_argument("--sets")
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    chosen = options.sets.split(",") if options.sets else None
    if options.part == "few":
        few(chosen or WIDE, options.draws, options.jobs, options.threads)
    elif options.part == "side":
        side(chosen or ("glove", *WIDE), options.quick, options.jobs, options.threads)
    elif options.part in ("guard", "query"):
        tasks = [(name, draw) for draw in range(options.draws) for name in chosen or ("glove", *WIDE)]
        by_draws(
            options.part, {"guard": one_guard, "query": one_query}[options.part], tasks, options.jobs, options.threads
        )
    elif options.part == "texts":
        tasks = [(f"{size} pairs", draw, size) for draw in range(options.draws) for size in TEXT_SIZES]
        by_draws("texts", one_text, tasks, options.jobs, options.threads)
    elif options.part == "race":
        race(5000 if options.quick else 100_000, options.jobs, options.threads)
    elif options.part == "tables":
        tables()
        tables_of_draws()
    else:
        speed(options.quick, chosen or ("evaluate", "rca"))


if __name__ == "__main__":
    main()
