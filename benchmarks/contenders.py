"""The contenders of each case, as functions: `setup(case)` returns `run`, and `run()` returns the result.

A case is a dict: kind ("scatter" or "density"), n, d, dtype, and for densities n_queries and bandwidth.
`run` returns (log_sums, scatter) for a scatter step, log-densities for a density.
"""

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np

THREADS = len(os.sched_getaffinity(0))


def data(case):
    """Return the points and the queries of a case; they are clustered, so that weights are neither uniform nor one-hot."""
    rng = np.random.default_rng(case.get("seed", 0))
    centres = rng.normal(size=(20, case["d"])) * 2.0
    points = centres[rng.integers(0, 20, case["n"])] + rng.normal(size=(case["n"], case["d"]))
    queries = points[rng.integers(0, case["n"], case.get("n_queries", 1))]
    queries = queries + 0.3 * rng.normal(size=queries.shape)
    return points.astype(case["dtype"]), queries.astype(case["dtype"])


def log_norm(case):
    return -0.5 * case["d"] * np.log(2 * np.pi) - case["d"] * np.log(case["bandwidth"]) - np.log(case["n"])


# -- one leave-one-out softmax scatter step ---------------------------------------------------------------------


def scatter_vicinal(case):
    from vicinal._engine import Engine, prepare

    Z, _ = data(case)
    problem = prepare(Engine("cpu", threads=THREADS), Z, leave_one_out=True)
    return lambda: problem.at().scatter()


def scatter_numpy(case):
    """Set up row-tiled NumPy with threads over blocks of rows, as a careful user would write it."""
    from threadpoolctl import threadpool_limits

    Z, _ = data(case)
    rows = 256
    squares = (Z**2).sum(1)

    def block(i):
        q = Z[i : i + rows]
        s = q @ Z.T
        s -= 0.5 * squares
        s -= 0.5 * squares[i : i + rows, None]
        s[np.arange(len(q)), i + np.arange(len(q))] = -np.inf
        top = s.max(1, keepdims=True)
        s -= top
        np.exp(s, out=s)
        total = s.sum(1, keepdims=True)
        s /= total
        return (top + np.log(total))[:, 0], q.T @ (s @ Z), s.sum(0)

    def run():
        with threadpool_limits(1, "blas"), ThreadPoolExecutor(THREADS) as pool:
            sums, crosses, columns = zip(*pool.map(block, range(0, len(Z), rows)), strict=True)
        cross, column = sum(crosses), sum(columns)
        return np.concatenate(sums), Z.T @ Z - cross - cross.T + (Z * column[:, None]).T @ Z

    return run


def scatter_torch(case):
    import torch

    torch.set_num_threads(THREADS)
    Z = torch.as_tensor(data(case)[0])
    rows = 512
    squares = (Z**2).sum(1)

    def run():
        cross, column, sums = 0.0, 0.0, []
        for i in range(0, len(Z), rows):
            q = Z[i : i + rows]
            s = torch.addmm(-0.5 * squares, q, Z.T) - 0.5 * squares[i : i + rows, None]
            s[torch.arange(len(q)), i + torch.arange(len(q))] = -torch.inf
            total = torch.logsumexp(s, 1)
            w = torch.exp_(s - total[:, None])
            sums.append(total)
            cross = cross + q.T @ (w @ Z)
            column = column + w.sum(0)
        return torch.cat(sums).numpy(), (Z.T @ Z - cross - cross.T + (Z * column[:, None]).T @ Z).numpy()

    return run


def scatter_pykeops(case):
    from pykeops.numpy import LazyTensor

    Z, _ = data(case)
    n = len(Z)
    xi, xj = LazyTensor(Z[:, None, :]), LazyTensor(Z[None, :, :])
    left = np.arange(n, dtype=Z.dtype)[:, None]
    same = (0.5 - ((LazyTensor(left[:, None, :]) - LazyTensor(left[None, :, :])) ** 2).sum(-1)).step()
    scores = -0.5 * ((xi - xj) ** 2).sum(-1) - 1e8 * same

    def run():
        sums = scores.logsumexp(1).ravel()
        weights = (scores - LazyTensor(sums[:, None, None])).exp()
        means = (weights * xj).sum(1)
        column = weights.sum(0).ravel()
        cross = Z.T @ means
        return sums, Z.T @ Z - cross - cross.T + (Z * column[:, None]).T @ Z

    return run


# -- log-density of queries under a Parzen density ----------------------------------------------------------------


def density_vicinal(case):
    from vicinal import Engine, ParzenWindows

    points, queries = data(case)
    density = ParzenWindows(case["bandwidth"], engine=Engine("cpu", threads=THREADS)).fit(points)
    return lambda: density.score_samples(queries)


def density_scikit_learn(case):
    from sklearn.neighbors import KernelDensity

    points, queries = data(case)
    density = KernelDensity(bandwidth=case["bandwidth"], rtol=1e-12, atol=0).fit(points)
    return lambda: density.score_samples(queries)


def density_scipy(case):
    from scipy.stats import gaussian_kde

    points, queries = data(case)
    density = gaussian_kde(points.T)
    # SciPy scales the data's covariance; give it the same isotropic kernel.
    density.covariance = case["bandwidth"] ** 2 * np.eye(case["d"])
    density.cho_cov = np.linalg.cholesky(density.covariance)
    density.log_det = 2 * np.log(np.diag(density.cho_cov * np.sqrt(2 * np.pi))).sum()
    return lambda: density.logpdf(queries.T)


def density_mlpack(case):
    import mlpack

    points, queries = data(case)
    model = mlpack.kde(reference=points, bandwidth=case["bandwidth"], kernel="gaussian", rel_error=0.0, abs_error=0.0)
    trained = model["output_model"]

    def run():
        found = mlpack.kde(query=queries, input_model=trained, rel_error=0.0, abs_error=0.0)["predictions"]
        with np.errstate(divide="ignore"):
            return np.log(np.ravel(found))

    return run


def density_kdepy(case):
    from KDEpy import TreeKDE

    points, queries = data(case)
    model = TreeKDE(kernel="gaussian", bw=case["bandwidth"]).fit(points)
    with np.errstate(divide="ignore"):
        return lambda: np.log(model.evaluate(queries))


def density_torch(case):
    import torch

    torch.set_num_threads(THREADS)
    points, queries = (torch.as_tensor(a) / case["bandwidth"] for a in data(case))
    squares = (points**2).sum(1)
    offset = log_norm(case)

    def run():
        parts = []
        for q in queries.split(128):
            s = torch.addmm(-0.5 * squares, q, points.T) - 0.5 * (q**2).sum(1, keepdim=True)
            parts.append(torch.logsumexp(s, 1))
        return torch.cat(parts).numpy() + offset

    return run


def density_pykeops(case):
    from pykeops.numpy import LazyTensor

    points, queries = (a / case["bandwidth"] for a in data(case))
    scores = -0.5 * ((LazyTensor(queries[:, None, :]) - LazyTensor(points[None, :, :])) ** 2).sum(-1)
    return lambda: scores.logsumexp(1).ravel() + log_norm(case)


CONTENDERS = {
    "scatter": {
        "vicinal": scatter_vicinal,
        "numpy": scatter_numpy,
        "torch": scatter_torch,
        "pykeops": scatter_pykeops,
    },
    "density": {
        "vicinal": density_vicinal,
        "scikit-learn": density_scikit_learn,
        "scipy": density_scipy,
        "mlpack": density_mlpack,
        "KDEpy": density_kdepy,
        "torch": density_torch,
        "pykeops": density_pykeops,
    },
}


# -- the truth ------------------------------------------------------------------------------------------------------


def truth(case, sample=20):
    """Return log-sums of some rows, or log-densities of some queries, by brute force from differences in float64."""
    points, queries = (a.astype(np.float64) for a in data(case))
    if case["kind"] == "density":
        rows = np.linspace(0, case["n_queries"] - 1, sample).astype(int)
        squares = (
            ((queries[rows][:, None, :] - points[None, :, :]) ** 2).sum(-1) if case["n"] * case["d"] < 2e6 else None
        )
        if squares is None:
            squares = np.array([((q - points) ** 2).sum(1) for q in queries[rows]])
        return rows, np.logaddexp.reduce(-0.5 * squares / case["bandwidth"] ** 2, axis=1) + log_norm(case)
    rows = np.linspace(0, case["n"] - 1, sample).astype(int)
    scores = np.array([-0.5 * ((points[i] - points) ** 2).sum(1) for i in rows])
    scores[np.arange(sample), rows] = -np.inf
    return rows, np.logaddexp.reduce(scores, axis=1)
