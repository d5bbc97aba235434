"""Adapters for embeddings, side by side: does a map learned from pairs search better than the raw rows?

    VICINAL_DATA=/path/to/data python benchmarks/adapters.py few [--sets usps,yale] [--draws 20] [--seconds 600]
    VICINAL_DATA=/path/to/data python benchmarks/adapters.py side [--sets usps,glove] [--quick]
    python benchmarks/adapters.py speed [--quick]
    python benchmarks/adapters.py tables

few: RCA(shrinkage="cv") from 30, 100 and 500 pairs against the raw rows, draw by draw (sets with at least 256 columns).
side: all methods on one split of each set.  speed: times beside NumPy's and torch's on this machine, in one run.  tables: prints the
tables of docs/adapters.md.
Each part writes benchmarks/results/adapters-PART.json after every set, so that an interrupted run loses nothing.

Sets, all compared by cosine: GloVe words (alike: a word and its forms in -s, -ed, -ing), MNIST and USPS pixels (alike: the
same digit), Yale B and Olivetti faces at 32 x 32 (alike: the same person), and a synthetic set.  Synthetic: 768 columns;
things are 32 standard normal numbers, seen through a random 32 x 768 matrix; each of three views of a thing adds 64
nuisance directions, common to all rows, of three times the size, and white noise of standard deviation 1.
"""

import argparse
import json
import os
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, normalize

from vicinal import NCA, RCA, AnchorNCA, retrieval

RESULTS = Path(__file__).parent / "results"
SIZES = (30, 100, 500)
WIDE = ("usps", "mnist", "yale", "olivetti", "synthetic")
CLASSES = ("usps", "mnist", "yale", "olivetti")


def load(name):
    """Rows and what groups them (-1: alone)."""
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
        return data["X_train"][some].astype(np.float32) - (-1000 if name == "usps" else 0), data["y_train"][some]
    if name == "yale":
        data = np.load(folder / "yaleb_32x32.npz")
        return data["X"].astype(np.float32), data["y"]
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
    """Two halves: rows of every class in both, or whole groups in either; rows alone go to both."""
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
    return retrieval.evaluate(queries, X, np.where(y < 0, -1, y), model=model, n_bootstrap=20, depth=10).mean


def few(sets, draws, seconds):
    found, end = earlier("few", sets), time.monotonic() + seconds
    rows_of = {name: load(name) for name in sets}
    for draw in range(draws):
        for name in sets:
            X, y = rows_of[name]
            rng = np.random.default_rng(draw)
            fit, test = halves(y, name in CLASSES, rng)
            asked = rng.permutation(np.flatnonzero(np.isin(y[test], y[test][y[test] >= 0])))[:300]
            raw = judge(X[test], y[test], asked)
            for size in SIZES:
                model = make_pipeline(Normalizer(), RCA(shrinkage="cv"), Normalizer()).fit(
                    X[fit], draw_pairs(y[fit], size, rng)
                )
                mine = judge(X[test], y[test], asked, model)
                row = [
                    raw["recall@10"],
                    mine["recall@10"],
                    raw["precision@10"],
                    mine["precision@10"],
                    model[1].shrinkage_,
                ]
                found.setdefault(name, {}).setdefault(str(size), []).append([round(float(v), 5) for v in row])
                rows = np.array(found[name][str(size)])
                gain = rows[:, 1] - rows[:, 0]
                error = gain.std(ddof=1) / len(gain) ** 0.5 if len(gain) > 1 else np.nan
                print(f"{name:10} {size:4} pairs, draw {draw}: raw {rows[:, 0].mean():.4f}, RCA {rows[:, 1].mean():.4f}, mean gain "
                      f"{gain.mean():+.4f} (se {error:.4f}), worst {gain.min():+.4f}, raw kept {rows[:, 4].mean():.2f}", flush=True)  # fmt: skip
            (RESULTS / "adapters-few.json").write_text(json.dumps(found, indent=1))
            if time.monotonic() > end:
                return


def without_top(X, n=3):
    pca = PCA(n).fit(X)
    return FunctionTransformer(
        lambda rows: (rows - pca.mean_) - (rows - pca.mean_) @ pca.components_.T @ pca.components_
    )


def whitened(X):
    pca = PCA(min(len(X) // 4, X.shape[1], 256), whiten=True).fit(X)
    return FunctionTransformer(pca.transform)


def gain_of_pairs(X, pairs, A):
    """nDCG@10 of the first rows of pairs looking for the second rows, among all second rows, by cosine."""
    left, right = (normalize(X[pairs[:, side]] @ A.T.astype(X.dtype)) for side in (0, 1))
    near = left @ right.T
    place = (near > np.diag(near)[:, None]).sum(axis=1)
    return float(np.where(place < 10, 1.0 / np.log2(2.0 + place), 0.0).mean())


def torch_adapter(X, pairs, start, held, temperature=0.05):
    """A linear map trained in torch: Adam, batches of 512, the best of five learning rates, early stopping.

    Returns the map, its nDCG@10 on the held-out pairs, and the seconds of the best learning rate until then.
    """
    import torch

    torch.manual_seed(0)
    rows, rng, best = torch.from_numpy(X), np.random.default_rng(0), (None, -1.0, 0.0)
    size = float(np.sqrt(np.mean(start**2)))
    for rate in (1e-3, 3e-3, 1e-2, 3e-2, 1e-1):
        A = torch.tensor(start, dtype=torch.float32, requires_grad=True)
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


def anchors_beside_torch(n_pairs, n_features=768, rank=128):
    """Seconds until AnchorNCA reaches the best held-out nDCG@10 of the torch adapter, and torch's own."""
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(n_pairs, 32)).astype(np.float32), 2, axis=0) @ rng.normal(
        size=(32, n_features)
    ).astype(np.float32)
    X += (
        3.0
        * rng.normal(size=(2 * n_pairs, 64)).astype(np.float32)
        @ rng.normal(size=(64, n_features)).astype(np.float32)
    )
    X = normalize(X + rng.standard_normal(size=X.shape, dtype=np.float32))
    pairs = np.arange(2 * n_pairs).reshape(n_pairs, 2)
    held, train = pairs[: min(n_pairs // 10, 1000)], pairs[min(n_pairs // 10, 1000) :]
    start = np.linalg.qr(rng.normal(size=(n_features, rank)))[0].T
    _, goal, theirs = torch_adapter(X, train, start, held)
    visited, began = [], time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        AnchorNCA(
            rank,
            init=start,
            random_state=0,
            callback=lambda A, _: visited.append((time.perf_counter() - began, A.copy())),
        ).fit(X, pairs=train)
    mine = next((took for took, A in visited if gain_of_pairs(X, held, A.reshape(rank, -1)) >= goal), None)
    ends = gain_of_pairs(X, held, visited[-1][1].reshape(rank, -1))
    return {"pairs": n_pairs, "torch nDCG@10": round(goal, 4), "torch seconds": round(theirs, 2),
            "AnchorNCA seconds to it": mine and round(mine, 2), "AnchorNCA nDCG@10 at its end": round(ends, 4)}  # fmt: skip


def linear(A):
    return FunctionTransformer(lambda rows: rows @ A.T.astype(rows.dtype))


def earlier(part, sets):
    """What an earlier run has found on other sets."""
    path = RESULTS / f"adapters-{part}.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    return {name: rows for name, rows in known.items() if name not in sets}


def methods_of(X, y, pairs, classes):
    """By name: the lines of code that a user writes for it, and a function that makes it."""
    U, rank = normalize(X), min(64, X.shape[1])
    start = RCA(rank, shrinkage="cv").fit(U, pairs).components_

    def unit(method):
        return make_pipeline(Normalizer(), method, Normalizer())

    def by_torch():
        return unit(linear(torch_adapter(U, pairs[50:], start, pairs[:50])[0]))

    methods = {
        "raw cosine": (0, lambda: None),
        "whitening": (2, lambda: unit(whitened(U))),
        "top 3 directions removed": (3, lambda: unit(without_top(U))),
        "RCA, 500 pairs": (1, lambda: unit(RCA(shrinkage="cv")).fit(X, pairs)),
        "AnchorNCA, 500 pairs": (1, lambda: unit(AnchorNCA(rank, init=start, random_state=0).fit(U, pairs=pairs))),
        "torch adapter, 500 pairs": (25, by_torch),
    }
    if classes:
        methods["LDA, labels"] = (1, lambda: unit(LinearDiscriminantAnalysis()).fit(X, y))
        methods["RCA, labels"] = (1, lambda: unit(RCA()).fit(X, y))
        methods["NCA, labels"] = (1, lambda: unit(NCA(32, solver="stochastic", max_iter=20, random_state=0)).fit(X, y))
    return methods


def side(sets, quick):
    table = earlier("side", sets)
    for name in sets:
        X, y = load(name)
        rng = np.random.default_rng(0)
        fit, test = halves(y, name in CLASSES, rng)
        if quick:
            fit, test = fit[:1500], test[:1500]
        asked = rng.permutation(np.flatnonzero(y[test] >= 0))[:300]
        methods = methods_of(X[fit], y[fit], draw_pairs(y[fit], 500, rng), name in CLASSES)
        for method, (lines, make) in methods.items():
            began = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = make()
            took = time.perf_counter() - began
            mean = judge(X[test], y[test], asked, model)
            table.setdefault(name, {})[method] = {
                **{key: round(mean[key], 4) for key in ("recall@1", "recall@10", "precision@10", "nDCG@10")},
                "fit_seconds": round(took, 2), "lines": lines,
            }  # fmt: skip
            print(name, method, table[name][method], flush=True)
        (RESULTS / "adapters-side.json").write_text(json.dumps(table, indent=1))


def speed(quick):
    rng, found = np.random.default_rng(0), earlier("speed", ())

    def keep(name, value):
        found[name + (", quick" if quick else "")] = value
        print(name, value, flush=True)
        (RESULTS / "adapters-speed.json").write_text(json.dumps(found, indent=1))

    n, m = (20_000, 300) if quick else (100_000, 1000)
    X = normalize(rng.normal(size=(n, 768)).astype(np.float32))
    Q = normalize(rng.normal(size=(m, 768)).astype(np.float32))
    laps = {"numpy": [], "evaluate": []}
    for _ in range(4):  # interleaved; the first lap of each may compile and load, and the best one counts
        began = time.perf_counter()
        np.argpartition(-(Q @ X.T), 99, axis=1)[:, :100]
        laps["numpy"].append(round(time.perf_counter() - began, 3))
        began = time.perf_counter()
        retrieval.evaluate(Q, X, np.column_stack([np.arange(m), np.arange(m)]), n_bootstrap=100)
        laps["evaluate"].append(round(time.perf_counter() - began, 3))
    keep(f"evaluate, {m} queries on {n} x 768, over NumPy", round(min(laps["evaluate"]) / min(laps["numpy"]), 2))
    keep("laps, s", laps)
    for shrinkage in ("auto", "cv"):
        began = time.perf_counter()
        RCA(shrinkage=shrinkage).fit(X[:20_000], rng.permutation(20_000)[:800].reshape(400, 2))
        keep(f"RCA, {shrinkage}, 20,000 x 768, 400 pairs, s", round(time.perf_counter() - began, 2))
    keep("per-anchor objective beside torch", anchors_beside_torch(5000 if quick else 100_000))


def tables():
    """Print what was found as the tables of docs/adapters.md."""
    few, sides = earlier("few", ()), earlier("side", ())
    print(
        "| set | pairs | draws | raw recall@10 | RCA recall@10 | mean gain (standard error) | worst draw | raw kept |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name, sizes in few.items():
        for size, rows in sizes.items():
            rows = np.array(rows)
            gain = rows[:, 1] - rows[:, 0]
            error = gain.std(ddof=1) / len(gain) ** 0.5 if len(gain) > 1 else 0.0
            print(f"| {name} | {size} | {len(rows)} | {rows[:, 0].mean():.4f} | {rows[:, 1].mean():.4f} | {gain.mean():+.4f} ({error:.4f}) "
                  f"| {gain.min():+.4f} | {100 * rows[:, 4].mean():.0f} % |")  # fmt: skip
    print(
        "\n| set | method | recall@1 | recall@10 | precision@10 | nDCG@10 | fit, s | lines |\n|---|---|---|---|---|---|---|---|"
    )
    for name, methods in sides.items():
        for method, found in methods.items():
            cells = [f"{found[key]:.4f}" for key in ("recall@1", "recall@10", "precision@10", "nDCG@10")]
            print(f"| {name} | {method} | {' | '.join(cells)} | {found['fit_seconds']} | {found['lines']} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("few", "side", "speed", "tables"))
    parser.add_argument("--sets")
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    chosen = options.sets.split(",") if options.sets else None
    if options.part == "few":
        few(chosen or WIDE, options.draws, options.seconds)
    elif options.part == "side":
        side(chosen or ("glove", *WIDE), options.quick)
    elif options.part == "tables":
        tables()
    else:
        speed(options.quick)


if __name__ == "__main__":
    main()
