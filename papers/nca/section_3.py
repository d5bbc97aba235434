"""Section 3: storage and search at low rank.

USPS digits: 7,291 training rows of 256 pixels are stored, 2,007 test rows are classified by their nearest neighbour. In full
rank all pixels are stored and searched by brute force; at rank d only the projections and the matrix are, O(dN) + Dd
numbers, searched by a k-d tree, as the paper proposes for d below ten. NCA learns each matrix from {_LEARNED} rows.
Times are those of one core, the fastest of five repetitions; the searches are interleaved.
"""

import time
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.neighbors import NearestNeighbors

from papers.drawing import curve, panels
from papers.experiment import Claim, Records, Setting, Summary, Table
from papers.nca._neighbours import fitted_nca

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TITLE = "Section 3: storage and search time at low rank"
COVERS = ("section 3",)
NEEDS = ("usps",)
ORDER = 1.6
MINUTES = (0.2, 2)

_LEARNED, _ITERATIONS = 2000, 30
_RANKS = (2, 3, 5, 8, 12, 20)


def units(setting: Setting) -> list[dict[str, Any]]:
    return [{"rank": rank} for rank in (_RANKS if setting.full else _RANKS[:4])]


def measure(setting: Setting, rank: int) -> dict[str, Any]:
    (X, y), (new, truth) = _digits(setting)
    chosen = np.random.RandomState(0).permutation(len(X))[: _LEARNED if setting.full else 600]
    A, _ = fitted_nca(X[chosen], y[chosen], n_components=rank, max_iter=_ITERATIONS, random_state=0)
    low, query = X @ A.T, new @ A.T
    searches = {
        "brute": (NearestNeighbors(n_neighbors=1, algorithm="brute").fit(X), new),
        "tree": (NearestNeighbors(n_neighbors=1, algorithm="kd_tree").fit(low), query),
        "brute low": (NearestNeighbors(n_neighbors=1, algorithm="brute").fit(low), query),
    }
    seconds: dict[str, list[float]] = {name: [] for name in searches}
    found = {}
    for _ in range(5):
        for name, (search, rows) in searches.items():
            start = time.perf_counter()
            found[name] = search.kneighbors(rows, return_distance=False)[:, 0]
            seconds[name].append(time.perf_counter() - start)
    return {
        "seconds": {name: min(values) for name, values in seconds.items()},
        "accuracy": {name: float((y[near] == truth).mean()) for name, near in found.items()},
        "numbers": {"full": X.size, "low": low.size + A.size},
        "shape": [*X.shape, len(new)],
    }


def _digits(setting: Setting) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    if not setting.full:
        X, y = load_digits(return_X_y=True)
        return (X[:1200], y[:1200]), (X[1200:], y[1200:])
    X, y = setting.load("usps", return_X_y=True)
    return (X[:7291], y[:7291]), (X[7291:], y[7291:])


def summarise(setting: Setting, records: Records) -> Summary:
    rows, faster, smaller = [], {}, {}
    for r in records:
        faster[r["rank"]] = r["seconds"]["brute"] / r["seconds"]["tree"]
        smaller[r["rank"]] = r["numbers"]["full"] / r["numbers"]["low"]
        rows.append(
            [
                r["rank"],
                f"{r['numbers']['low']:,}",
                f"{smaller[r['rank']]:.1f}",
                f"{1e6 * r['seconds']['tree'] / r['shape'][2]:.0f}",
                f"{faster[r['rank']]:.1f}",
                f"{1e6 * r['seconds']['brute low'] / r['shape'][2]:.0f}",
                f"{r['accuracy']['tree']:.3f}",
            ]
        )
    first = records[0]
    n, d, queries = first["shape"]
    full = f"{1e6 * first['seconds']['brute'] / queries:.0f}"
    rows.append(["all", f"{first['numbers']['full']:,}", "", "", "", full, f"{first['accuracy']['brute']:.3f}"])
    low = [rank for rank in faster if rank < 10]
    exact = all(r["numbers"]["low"] == r["rank"] * n + d * r["rank"] for r in records)
    claims = [
        Claim(
            "storage is dN + Dd numbers instead of DN, ten times less or better below rank ten",
            exact and min(smaller[rank] for rank in low) >= 10,
            ", ".join(f"{smaller[rank]:.0f} times less at rank {rank}" for rank in low),
        ),
        Claim(
            "and search is faster below rank ten (k-d tree against brute force in all columns: five times or more)",
            min(faster[rank] for rank in low) >= 5,
            ", ".join(f"{faster[rank]:.1f} times at rank {rank}" for rank in low),
        ),
    ]
    columns = [
        "rank d",
        "numbers stored",
        "times less",
        "k-d tree: µs per row",
        "times faster",
        "brute force: µs per row",
        "test accuracy",
    ]
    remarks = [
        f"{n:,} stored rows of {d} columns, {queries:,} queries. Euclidean neighbours in all pixels have the last row's accuracy."
    ]
    remarks += [] if setting.full else ["Quick mode has scikit-learn's small digits instead of USPS."]
    return Summary([Table(columns, rows)], claims, remarks)


def draw(setting: Setting, records: Records) -> "dict[str, Figure]":
    figure, axes = panels(1, 2, size=(5.6, 4.4))
    ranks = [record["rank"] for record in records]
    queries = records[0]["shape"][2]
    for number, (name, words) in enumerate(
        {"tree": "k-d tree at rank d", "brute low": "brute force at rank d", "brute": "all columns"}.items()
    ):
        curve(axes[0, 0], number, ranks, [1e6 * r["seconds"][name] / queries for r in records], label=words)
    axes[0, 0].set(xlabel="rank d", ylabel="µs per query", yscale="log", title="search")
    axes[0, 0].legend()
    curve(axes[0, 1], 0, ranks, [r["accuracy"]["tree"] for r in records], label="NCA at rank d")
    curve(axes[0, 1], 2, ranks, [r["accuracy"]["brute"] for r in records], label="all columns")
    axes[0, 1].set(xlabel="rank d", ylabel="test accuracy of 1-NN", title="accuracy")
    axes[0, 1].legend()
    return {"section-3": figure}
