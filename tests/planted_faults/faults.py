"""Sixty faults of one line each, in the engine, the methods and the model files, and the tests that should detect them.

A fault is planted by replacing a text that occurs exactly once in its file. The list was not derived from what the tests
detect: each line was chosen because it contains a decision (a sign, a bound, a case, a weight), and because only a wrong
result would reveal the fault.
"""

from typing import NamedTuple


class Fault(NamedTuple):
    """A fault: the file below ``src/vicinal``, the text, its replacement, what goes wrong, and test files that concern it."""

    file: str
    text: str
    planted: str
    wrong: str
    tests: tuple[str, ...]


_LAWS = ("test_engine", "test_engine_tiles", "test_engine_neighbors")
_PRUNING = ("test_engine", "test_engine_pruning")
_LCA = ("test_lca", "test_lca_penalty", "test_lca_stochastic", "test_idea")
_NCA = ("test_nca", "test_nca_objectives", "test_nca_stochastic", "test_pair_nca", "test_idea")
_RCA = ("test_rca", "test_scatter", "test_rca_optimality", "test_raw_shrinkage")
_OUTLIERS = ("test_density_outliers", "test_groups", "test_mixture_matrix")
_FILES = ("test_io", "test_io_states", "test_io_security", "test_io_limits", "test_io_signed")

ENGINE = [
    Fault(
        "_engine/_arrays.py",
        "weights[None, :] - 0.5 * squares",
        "weights[None, :] + 0.5 * squares",
        "weighted points repel instead of attract in the reference backend",
        _LAWS,
    ),
    Fault(
        "_engine/_arrays.py",
        "hit = np.flatnonzero(skip >= 0)",
        "hit = np.flatnonzero(skip > 0)",
        "the first row is its own neighbour",
        _LAWS,
    ),
    Fault(
        "_engine/_arrays.py",
        "top = xp.where(xp.isfinite(top), top, xp.zeros_like(top))",
        "top = xp.where(xp.isfinite(top), top, top)",
        "a row without neighbours gets NaN",
        _LAWS,
    ),
    Fault(
        "_engine/_arrays.py",
        "received += as_numpy(to_points)",
        "received[...] = as_numpy(to_points)",
        "points receive contributions only from the last block of queries",
        _LAWS,
    ),
    Fault(
        "_engine/_placement.py",
        "values[:, -1] -= finite(self.problem.points.log_weights)",
        "values[:, -1] += finite(self.problem.points.log_weights)",
        "perplexities of weighted points",
        _LAWS,
    ),
    Fault(
        "_engine/_placement.py",
        "_NEGLIGIBLE_NATS = 45.0",
        "_NEGLIGIBLE_NATS = 4.5",
        "pairs that matter are considered negligible",
        (*_LAWS, "test_lca"),
    ),
    Fault(
        "_engine/_placement.py",
        "factors = r if likelihood else r * np.exp(log_agreement)",
        "factors = r if likelihood else np.exp(log_agreement)",
        "row weights are lost in the pull of soft targets",
        (*_LAWS, "test_nca_objectives"),
    ),
    Fault(
        "_engine/_placement.py",
        "both[len(metric) :, n_features:] = np.eye(n_targets)",
        "both[len(metric) :, n_features:] = 2.0 * np.eye(n_targets)",
        "Gaussian matches have half their scale",
        (*_LAWS, "test_nca_objectives"),
    ),
    Fault(
        "_engine/_nearest.py",
        "least = kth - 2.0 * error(rows, kth) - 2.0 * TIED * np.abs(kth)",
        "least = kth",
        "ties and rounding at the k-th neighbour",
        ("test_engine_neighbors", "test_engine", "test_neighbors"),
    ),
    Fault(
        "_engine/_nearest.py",
        "decided = (kth < last - error) | (reach == n)",
        "decided = kth < np.inf",
        "an undecided search is accepted",
        ("test_engine_neighbors", "test_engine", "test_manifold_parzen"),
    ),
    Fault(
        "_engine/_accuracy.py",
        "_TOLERANCE = {np.dtype(np.float64): 2e-11, np.dtype(np.float32): 2e-4}",
        "_TOLERANCE = {np.dtype(np.float64): 2e-3, np.dtype(np.float32): 2e1}",
        "products are used where they have lost all digits",
        (*_LAWS, "test_engine_resources"),
    ),
    Fault(
        "_engine/_kernels.py",
        "rescale[r] = np.exp(top[g + r] - peaks[r])",
        "rescale[r] = np.exp(peaks[r] - top[g + r])",
        "sums so far are scaled the wrong way when a larger score occurs",
        _LAWS,
    ),
    Fault(
        "_engine/_kernels.py",
        "        if total[r] < smallest:",
        "        if total[r] < 0.0:",
        "rows whose sum underflows are not computed again",
        _LAWS,
    ),
    Fault(
        "_engine/_kernels.py",
        "        if 0 <= skip < TILE:",
        "        if 0 < skip < TILE:",
        "the first row of every tile is its own neighbour",
        _LAWS,
    ),
    Fault(
        "_engine/_row_kernels.py",
        "return row_weight * (1.0 - 1.0 / agreement) / total, row_weight / total, np.log(agreement)",
        "return row_weight * (1.0 - agreement) / total, row_weight / total, np.log(agreement)",
        "the pull of the likelihood towards class mates",
        _LAWS,
    ),
    Fault(
        "_engine/_row_kernels.py",
        "sums[r, c] += _sum_between(scores[r], lo, hi)",
        "sums[r, c] += _sum_between(scores[r], lo, hi - 1)",
        "the last point of a class has no share",
        (*_LAWS, "test_soft_neighbors"),
    ),
    Fault(
        "_engine/_half_kernels.py",
        "half = scores.dtype.type(0.5 if t == own else 1.0)",
        "half = scores.dtype.type(1.0)",
        "pairs within a tile count twice",
        _LAWS,
    ),
    Fault(
        "_engine/_half.py",
        "        mass = b * mass\n",
        "        mass = 1.0 * mass\n",
        "the scatter of weighted points, each pair once",
        _LAWS,
    ),
    Fault(
        "_engine/_half.py",
        "underflowed = np.flatnonzero((totals < pairs.smallest) | np.isnan(log_agreement))",
        "underflowed = np.flatnonzero(totals < pairs.smallest)",
        "rows whose class mates are far away are not computed again",
        _LAWS,
    ),
    Fault(
        "_engine/_product_kernels.py",
        "        if 0 <= skip < width:",
        "        if 0 <= skip < width - 1:",
        "the last row of a tile of products is its own neighbour",
        _LAWS,
    ),
    Fault(
        "_engine/_pruned_boxes.py",
        "tail = tail + weights[b] * np.exp(nats) if nats < 700.0 else np.inf",
        "tail = weights[b] * np.exp(nats) if nats < 700.0 else np.inf",
        "the certificate ignores the contribution of distant tiles",
        _PRUNING,
    ),
    Fault(
        "_engine/_pruned_boxes.py",
        "mass[t] = np.log(float64(count))",
        "mass[t] = -20.0",
        "tiles of unweighted points have almost no weight",
        _PRUNING,
    ),
    Fault(
        "_engine/_pruned_sweep.py",
        "skip = left_out[first + r] - starts[t]",
        "skip = left_out[first + r] - starts[t] + 1",
        "pruned sums leave out the next row instead of the row itself",
        _PRUNING,
    ),
    Fault(
        "_engine/_frame_kernels.py",
        "residuals[m, i + r, j] = max(left[r, j], zero)",
        "residuals[m, i + r, j] = left[r, j]",
        "residuals of frames fall below zero by rounding",
        ("test_engine_frames", "test_frame_mixture", "test_manifold_parzen"),
    ),
    Fault(
        "_engine/_covariances.py",
        "doubled = np.where(self._first == self._second, 0.5, 1.0)",
        "doubled = np.where(self._first == self._second, 1.0, 1.0)",
        "the diagonal of a point's precision counts twice",
        ("test_engine_covariances", "test_engine"),
    ),
    Fault(
        "_engine/_streamed.py",
        "own - part.start, -1)",
        "own, -1)",
        "rows of later blocks of a file are their own neighbours",
        ("test_row_sources", "test_engine_resources"),
    ),
    Fault(
        "_engine/_row_search.py",
        "extra -= error * offset",
        "extra += error * offset",
        "the margin of a search by distances has the wrong sign",
        ("test_row_search", "test_retrieval"),
    ),
]

METHODS = [
    Fault(
        "_leave_one_out.py",
        "log_others = np.full(len(X), np.log(len(X) - 1.0))",
        "log_others = np.full(len(X), np.log(len(X) + 0.0))",
        "leave-one-out densities divide by n instead of n - 1",
        ("test_parzen", *_LCA),
    ),
    Fault(
        "_leave_one_out.py",
        "others[heaviest] = np.delete(weight, heaviest).sum()",
        "others[heaviest] = others[heaviest]",
        "the weight of the other rows cancels if one row has nearly all of it",
        ("test_parzen", "test_lca", "test_hostile_inputs", "test_frame_mixture"),
    ),
    Fault(
        "_lca/steps.py",
        "matrix = reg.in_frame(metric).updated(scatter / weight.sum())",
        "matrix = reg.in_frame(metric.T).updated(scatter / weight.sum())",
        "the penalty of LCA in the wrong frame",
        _LCA,
    ),
    Fault(
        "_lca/steps.py",
        "rest = values[: len(values) - rank].mean()",
        "rest = values[0]",
        "the noise of a low-rank covariance",
        _LCA,
    ),
    Fault(
        "_lca/steps.py",
        "rows = vectors[:, ::-1].T @ metric",
        "rows = vectors.T @ metric",
        "local components in reverse order",
        (*_LCA, "test_lca_examples"),
    ),
    Fault(
        "_lca/accelerated.py",
        "if reached >= objective:",
        "if reached >= objective - 1.0:",
        "the accelerated solver accepts steps that lower the objective",
        _LCA,
    ),
    Fault(
        "_lca/gauss_steps.py",
        "n_local = int(np.searchsorted(values, 1.0))",
        "n_local = max(int(np.searchsorted(values, 1.0)) - 1, 0)",
        "the cut of Algorithm 1 is off by one",
        ("test_lca_gauss", "test_idea"),
    ),
    Fault(
        "_lca/gauss_steps.py",
        "exponent = -0.5 * split.gaussian.shape[1]",
        "exponent = -0.5 * split.local.shape[1]",
        "the Gaussian's exponent in the objective of LCA-Gauss",
        ("test_lca_gauss", "test_idea"),
    ),
    Fault(
        "_fit_loops.py",
        "better = objective > self.objective if keep is None else keep",
        "better = True if keep is None else keep",
        "the last point of a fit is kept instead of the best",
        ("test_fit_loops", "test_nca", "test_callback"),
    ),
    Fault(
        "_fit_loops.py",
        "return max(done, key=lambda path: path.objectives[-1]).ended_by(reason)",
        "return max(done, key=lambda path: len(path.objectives)).ended_by(reason)",
        "the longest of several starts is kept instead of the best",
        ("test_fit_loops", "test_nca", "test_nca_init"),
    ),
    Fault(
        "_nca/objectives.py",
        "pull = -2.0 * share[:, None] * shifts - attraction",
        "pull = -1.0 * share[:, None] * shifts - attraction",
        "the gradient of Eq. 8",
        _NCA,
    ),
    Fault(
        "_nca/objectives.py",
        "evaluation.gradient - 2.0 * penalty * A)",
        "evaluation.gradient - penalty * A)",
        "the gradient of NCA's penalty",
        _NCA,
    ),
    Fault(
        "_nca/stochastic.py",
        "for start in range(0, n - size + 1, size):",
        "for start in range(0, n - size, size):",
        "the last batch of a pass is never visited",
        ("test_nca_stochastic", "test_nca"),
    ),
    Fault(
        "_nca/rows.py",
        "if (weight == weight[0]).all():",
        "if (weight >= weight[0]).all():",
        "weights that only exceed the first are ignored",
        ("test_nca", "test_nca_stochastic", "test_nca_objectives"),
    ),
    Fault(
        "_rca/shrinkage.py",
        "from_truth = (fourth / n_contrasts - square) / n_contrasts",
        "from_truth = (fourth / n_contrasts - square)",
        "the shrinkage of Ledoit and Wolf",
        _RCA,
    ),
    Fault(
        "_rca/rca.py",
        "shrunk(sums.within / (sums.n_contrasts if self.unbiased else sums.n_points), shrinkage, units)",
        "shrunk(sums.within / (sums.n_points if self.unbiased else sums.n_points), shrinkage, units)",
        "the unbiased covariance of chunklets",
        _RCA,
    ),
    Fault(
        "_scatter.py",
        "fourth += (2.0 if i == j else 4.0) * (both.T @ both)",
        "fourth += 2.0 * (both.T @ both)",
        "fourth moments of small chunklets",
        _RCA,
    ),
    Fault(
        "_scatter.py",
        "shift=self.shift + share * apart,",
        "shift=self.shift + apart,",
        "the mean after two streams are merged",
        (*_RCA, "test_online_rca"),
    ),
    Fault(
        "_scatter.py",
        "return rows / np.sqrt(neighbors.shape[1])",
        "return rows / np.sqrt(neighbors.shape[1] + 1)",
        "variances of Manifold Parzen divide by k + 1",
        ("test_manifold_parzen", "test_scatter", "test_frame_mixture", "test_idea"),
    ),
    Fault(
        "_manifold_parzen/held_out_frames.py",
        "return np.arange(k) + (np.arange(k) >= np.arange(k)[:, None])",
        "return np.arange(k) + (np.arange(k) > np.arange(k)[:, None])",
        "a held-out row still shapes the frames of its neighbours",
        ("test_manifold_parzen", "test_manifold_parzen_selection"),
    ),
    Fault(
        "_mixtures/shared_mixture.py",
        "covariance = self.covariance[np.ix_(rest, rest)] - gain @ cross.T",
        "covariance = self.covariance[np.ix_(rest, rest)] + gain @ cross.T",
        "conditional densities are too wide",
        ("test_parzen", "test_mixture_matrix", "test_conditionals", "test_lca"),
    ),
    Fault(
        "_mixtures/frame_mixture.py",
        "log_likelihoods[part] = -0.5 * (square + log_det)",
        "log_likelihoods[part] = -0.5 * square",
        "weights of components given some columns",
        ("test_frame_mixture", "test_mixture_matrix", "test_manifold_parzen"),
    ),
    Fault(
        "_density/parzen.py",
        'return (effective if rule == "scott" else effective * (d + 2) / 4.0) ** (-2.0 / (d + 4))',
        'return (effective if rule == "scott" else effective * (d + 2) / 2.0) ** (-2.0 / (d + 4))',
        "Silverman's rule",
        ("test_parzen",),
    ),
    Fault(
        "_density/outlier_threshold.py",
        'np.searchsorted(self.in_order, scores, side="right")',
        'np.searchsorted(self.in_order, scores, side="left")',
        "p-values of training rows do not count the row itself",
        _OUTLIERS,
    ),
    Fault(
        "_density/groups.py",
        "own[reference] = np.arange(len(reference))",
        "own[reference] = -1",
        "rows count as their own neighbours in the search for groups of outliers",
        _OUTLIERS,
    ),
    Fault(
        "_density/classifier.py",
        "self.constant_variances_[c, ignored] = usual[ignored] / (moments[c].mass + 1.0)",
        "self.constant_variances_[c, ignored] = usual[ignored]",
        "the variance around a constant column of a class",
        ("test_density_classifier",),
    ),
    Fault(
        "_supervision/chunklets.py",
        "kept = sizes >= 2",
        "kept = sizes >= 1",
        "chunklets of one point are kept",
        ("test_chunklets", "test_rca", "test_supervision"),
    ),
]

MODEL_FILES = [
    Fault(
        "_model_files/model_file.py",
        "for part in (memoryview(start)[_DIGEST_END:], *data):",
        "for part in (memoryview(start)[_DIGEST_END:],):",
        "the checksum does not cover the arrays",
        _FILES,
    ),
    Fault(
        "_model_files/reader.py",
        "transpose(np.argsort(axes))",
        "transpose(axes)",
        "arrays of three axes in an unusual memory order are loaded transposed",
        _FILES,
    ),
    Fault(
        "_model_files/reader.py",
        "0 <= position <= 624",
        "0 <= position <= 6240",
        "a random state may point outside its key",
        _FILES,
    ),
    Fault(
        "_model_files/fields.py",
        "return limit is None or value.size == 0 or int(value.max()) < limit",
        "return limit is None or value.size == 0 or int(value.max()) <= limit",
        "positions may point one past the end",
        _FILES,
    ),
    Fault(
        "_model_files/relations.py",
        "return triangular and _is_close(covariance, lambda rows: lower[rows] @ lower.T, 1e-6, scale)",
        "return triangular",
        "a Cholesky factor that does not belong to its covariance is accepted",
        _FILES,
    ),
    Fault(
        "_model_files/replacing.py",
        "            os.unlink(temporary)\n        raise",
        "            pass\n        raise",
        "a write that fails leaves a temporary file behind",
        (*_FILES, "test_cli"),
    ),
]

FAULTS = [*ENGINE, *METHODS, *MODEL_FILES]
