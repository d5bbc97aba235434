r"""Exact softmax sums over all pairs of rows, as differentiable functions of torch tensors.

- :func:`log_sums`: :math:`\log \sum_j w_j \exp(-|q_i - x_j|^2 / 2)` of each query;
- :func:`soft_means`: the mean of values of the points under the same weights;
- :func:`nca_loss`, :func:`info_nce_loss`: losses on them, for any network.

All pairs count, but no matrix of pairs is kept: the pair engine computes the sums tile by tile, forward and backward, so that memory is
O(n k) for n rows of k columns. Two runs on one machine give the same bits.

Only queries, points, values and weights have gradients, and gradients cannot be differentiated again. Rows may be float64,
float32 or bfloat16; those in bfloat16 are computed in float32. Tensors on a GPU are computed there by the engine, and their sums pass
through the memory of the host.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

try:
    import torch
    from torch import Tensor
    from torch.autograd.function import once_differentiable
except ImportError as error:
    message = "vicinal.torch needs torch, which is not installed. Run: pip install 'vicinal[torch]'"
    raise ModuleNotFoundError(message, name="torch") from error

from vicinal._engine import Match, Placement, engine_at, prepare

__all__ = ["info_nce_loss", "log_sums", "nca_loss", "soft_means"]

_WIDTH = 128  # numbers per row that a sweep of the gradient of `soft_means` gathers


def __dir__() -> list[str]:
    return sorted(__all__)


def log_sums(
    queries: Tensor,
    points: Tensor | None = None,
    log_weights: Tensor | None = None,
    exclude: str | Tensor | None = None,
) -> Tensor:
    r"""Return :math:`\log \sum_j \exp(l_j - |q_i - x_j|^2 / 2)` of each query.

    Parameters
    ----------
    queries : Tensor of shape (m, k)
        The queries :math:`q_i`.
    points : Tensor of shape (n, k), optional
        The points :math:`x_j`; the queries themselves by default.
    log_weights : Tensor of shape (n,), optional
        The logarithms :math:`l_j` of the weights of the points; -inf leaves a point out.
    exclude : None, "position" or integer Tensor of shape (m,), default=None
        The point that is left out for each query: none; the one at the same position; or the ones at these positions, where -1 leaves
        out none. Rows are left out by position, never by distance, because there may be duplicates.

    Returns
    -------
    Tensor of shape (m,)
        In float32 for bfloat16, else in the precision of the queries. It is -inf, with a gradient of 0, for a query without points.

    Examples
    --------
    >>> import torch
    >>> from vicinal.torch import log_sums
    >>> z = torch.tensor([[0.0], [1.0], [3.0]], requires_grad=True)
    >>> log_sums(z, exclude="position").exp()
    tensor([0.6176, 0.7419, 0.1464], grad_fn=<ExpBackward0>)
    """
    pairs = _pairs(queries, points, log_weights, exclude)
    return _LogSums.apply(pairs, queries, points, log_weights)


def soft_means(
    queries: Tensor,
    points: Tensor | None,
    values: Tensor,
    log_weights: Tensor | None = None,
    exclude: str | Tensor | None = None,
) -> Tensor:
    r"""Return the mean of values of the points, weighted by a softmax of each query.

    The result is :math:`\sum_j p_{ij} v_j` with :math:`p_{ij} \propto \exp(l_j - |q_i - x_j|^2 / 2)`. Its gradient takes about one
    sweep over all pairs per :math:`128 / k` columns of the values.

    Parameters
    ----------
    queries, points, log_weights, exclude
        As in `log_sums`; None for points takes the queries.
    values : Tensor of shape (n, v) or (n,)
        The values :math:`v_j` of the points.

    Returns
    -------
    Tensor of shape (m, v) or (m,)
        0 for a query without points.

    Examples
    --------
    >>> import torch
    >>> from vicinal.torch import soft_means
    >>> z, y = torch.tensor([[0.0], [1.0], [3.0]]), torch.tensor([1.0, 2.0, 3.0])
    >>> soft_means(z, None, y, exclude="position")  # the leave-one-out prediction of a kernel regression
    tensor([2.0180, 1.3649, 1.9241])
    """
    pairs = _pairs(queries, points, log_weights, exclude)
    n = len(queries if points is None else points)
    if (
        not isinstance(values, Tensor)
        or values.ndim not in (1, 2)
        or len(values) != n
        or not values.is_floating_point()
    ):
        raise ValueError(
            f"values must be a floating-point tensor of shape ({n},) or ({n}, v), got {_described(values)}."
        )
    table = values if values.ndim == 2 else values[:, None]
    means = _SoftMeans.apply(pairs, queries, points, log_weights, table)
    return means if values.ndim == 2 else means[:, 0]


def nca_loss(
    z: Tensor,
    y: Tensor,
    points: Tensor | None = None,
    points_y: Tensor | None = None,
    positions: Tensor | None = None,
    scale: float = 1.0,
    objective: str = "likelihood",
) -> Tensor:
    r"""Return the loss of Neighbourhood Components Analysis, with all points as neighbours.

    With :math:`p_{ij} \propto \exp(-s |z_i - x_j|^2)` and :math:`a_i = \sum_j p_{ij} 1[y_j = y_i]`, the loss is the mean of
    :math:`-\log a_i`, or of :math:`1 - a_i`.

    Parameters
    ----------
    z : Tensor of shape (m, k)
        The images of the rows.
    y : integer Tensor of shape (m,)
        Their classes.
    points : Tensor of shape (n, k), optional
        The images of the possible neighbours; z by default, where no row is a neighbour of itself.
    points_y : integer Tensor of shape (n,), optional
        Their classes.
    positions : integer Tensor of shape (m,), optional
        The position of each row of z among the points, which is not a neighbour of itself; -1 for a row that is none of them.
    scale : float, default=1.0
        The factor s of squared distances: the larger, the fewer neighbours count.
    objective : {"likelihood", "accuracy"}, default="likelihood"
        Eq. 6 of the paper, :math:`-\log a_i`, or Eq. 3, :math:`1 - a_i`.

    Returns
    -------
    Tensor
        The loss, a scalar.

    Examples
    --------
    >>> import torch
    >>> from vicinal.torch import nca_loss
    >>> network = torch.nn.Linear(5, 2)
    >>> X, y = torch.randn(100, 5), torch.arange(100) % 3
    >>> nca_loss(network(X), y).backward()
    >>> network.weight.grad.shape
    torch.Size([2, 5])
    """
    if objective not in ("likelihood", "accuracy"):
        raise ValueError(f"objective must be 'likelihood' or 'accuracy', got {objective!r}.")
    if not 0.0 < scale < float("inf"):
        raise ValueError(f"scale must be a positive number, got {scale!r}.")
    if (points is None) != (points_y is None) or (points is None and positions is not None):
        raise ValueError("points and points_y must be passed together, and positions only with them.")
    _check_rows(z, "z")
    codes = _codes(y, z, "y")
    images = z * (2.0 * scale) ** 0.5  # the engine's scores are -|z_i - z_j|^2 / 2
    if points is None or points_y is None:
        codes = np.unique(codes, return_inverse=True)[1]
        if objective == "likelihood":
            _check_mates(np.bincount(codes)[codes] - 1)
        return _NcaLoss.apply(images, codes, objective)
    theirs = points * (2.0 * scale) ** 0.5
    log_agreement = _log_agreement_with(
        images, codes, theirs, _codes(points_y, points, "points_y"), positions, needs_mates=objective == "likelihood"
    )
    return -log_agreement.mean() if objective == "likelihood" else 1.0 - log_agreement.exp().mean()


def info_nce_loss(
    a: Tensor, b: Tensor, temperature: float = 0.05, normalize: bool = True, symmetric: bool = False
) -> Tensor:
    r"""Return the InfoNCE loss of pairs (a_i, b_i), in which each row of a distinguishes its partner from all other rows of b.

    The loss is the mean of :math:`-\log \bigl( \exp(a_i \cdot b_i / t) / \sum_j \exp(a_i \cdot b_j / t) \bigr)`.

    Parameters
    ----------
    a, b : Tensors of shape (m, k)
        The pairs, row by row; b may have further rows, which are in no pair.
    temperature : float, default=0.05
        The divisor t.
    normalize : bool, default=True
        Whether rows are scaled to unit length first, so that products are cosines.
    symmetric : bool, default=False
        Whether to average with the loss in which rows of b distinguish their partners in a.

    Returns
    -------
    Tensor
        The loss, a scalar.

    Examples
    --------
    >>> import torch
    >>> from vicinal.torch import info_nce_loss
    >>> a = torch.eye(4)
    >>> bool(info_nce_loss(a, a) < info_nce_loss(a, a.flip(0)))
    True
    """
    if not 0.0 < temperature < float("inf"):
        raise ValueError(f"temperature must be a positive number, got {temperature!r}.")
    _check_rows(a, "a")
    _check_rows(b, "b", a)
    if len(b) < len(a) or (symmetric and len(b) != len(a)):
        expected = f"{len(a)} rows" if symmetric else f"at least {len(a)} rows"
        raise ValueError(f"b must have {expected}, a partner for each row of a, got {len(b)}.")
    a, b = (x.float() if x.dtype == torch.bfloat16 else x for x in (a, b))
    if normalize:
        a, b = (torch.nn.functional.normalize(x, dim=1) for x in (a, b))
    a, b = a / temperature**0.5, b / temperature**0.5
    partners = b[: len(a)]

    def one_side(queries: Tensor, points: Tensor, paired: Tensor) -> Tensor:
        # a'b = (|a|^2 + |b|^2 - |a - b|^2) / 2: the squares of the points are weights, those of the queries cancel.
        squares = None if normalize else 0.5 * points.square().sum(dim=1)
        own = 0.0 if squares is None else squares[: len(queries)]
        return (log_sums(queries, points, squares) + 0.5 * (queries - paired).square().sum(dim=1) - own).mean()

    loss = one_side(a, b, partners)
    return 0.5 * (loss + one_side(partners, a, a)) if symmetric else loss


# -- the pairs of a call -----------------------------------------------------------------------------------------------


class _Pairs(NamedTuple):
    """The queries and points of a call, as the engine has them.

    placement : the points
    queries, left_out : the arguments of the sums of `Placement`; None for all points
    asked : the same for those of `placement.placed`
    images, own_images : float64 arrays (n, k) and (m, k) of points and queries, minus a common centre
    """

    placement: Placement
    queries: np.ndarray | None
    left_out: np.ndarray | None
    asked: Any
    images: np.ndarray
    own_images: np.ndarray


def _pairs(queries: Any, points: Any, log_weights: Any, exclude: Any) -> _Pairs:
    """Check the arguments of a call and prepare its sums."""
    _check_rows(queries, "queries")
    if points is not None:
        _check_rows(points, "points", queries)
    m, n = len(queries), len(queries if points is None else points)
    if log_weights is not None and (not isinstance(log_weights, Tensor) or log_weights.shape != (n,)):
        raise ValueError(f"log_weights must be a tensor of shape ({n},), got {_described(log_weights)}.")
    left_out = _left_out(exclude, m, n)
    own = points is None and (left_out is None or isinstance(exclude, str))
    rows = _array(queries if points is None else points)
    problem = prepare(
        engine_at(None, queries) if queries.device.type != "cpu" else None,
        rows,
        log_weights=None if log_weights is None else _array(log_weights),
        leave_one_out=own and left_out is not None,
        n_queries=m,
    )
    placement = problem.at()
    problem = placement.problem  # in float64, if float32 about one centre would lose visible digits
    given = (None, None) if own else (_array(queries), left_out)
    asked = problem.queries(*given)
    images = problem.points.rows.astype(np.float64, copy=False)
    mine = images if own else np.asarray(asked.rows, dtype=np.float64)
    return _Pairs(placement, given[0], given[1], asked, images, mine)


def _check_rows(rows: Any, name: str, like: Tensor | None = None) -> None:
    """Raise an error unless this is a finite table of rows, as wide and of the same precision and device as another one."""
    if not isinstance(rows, Tensor) or rows.ndim != 2 or 0 in rows.shape:
        raise TypeError(f"{name} must be a torch tensor of shape (rows, columns), got {_described(rows)}.")
    if rows.dtype not in (torch.float64, torch.float32, torch.bfloat16):
        raise TypeError(
            f"{name} must be float64, float32 or bfloat16, got {rows.dtype}. Convert it with {name}.float()."
        )
    if like is not None and (rows.shape[1], rows.dtype, rows.device) != (like.shape[1], like.dtype, like.device):
        raise ValueError(
            f"{name} must have {like.shape[1]} columns of {like.dtype} on {like.device}, as the other rows have, got "
            f"{rows.shape[1]} of {rows.dtype} on {rows.device}."
        )
    if not torch.isfinite(rows.detach()).all():
        raise ValueError(
            f"{name} must be finite, got NaN or infinity: the network may have diverged. Lower its learning rate."
        )


def _left_out(exclude: Any, m: int, n: int) -> np.ndarray | None:
    if exclude is None:
        return None
    if isinstance(exclude, str):
        if exclude != "position":
            raise ValueError(f"exclude must be None, 'position' or a tensor of positions, got {exclude!r}.")
        if m > n:
            raise ValueError(f"exclude='position' needs a point for each of the {m} queries, got {n} points.")
        return np.arange(m)
    if not isinstance(exclude, Tensor) or exclude.shape != (m,) or exclude.is_floating_point():
        raise ValueError(
            f"exclude must be None, 'position' or an integer tensor of shape ({m},), got {_described(exclude)}."
        )
    places = exclude.detach().cpu().numpy().astype(np.int64)
    if m and (places.min() < -1 or places.max() >= n):
        raise ValueError(
            f"exclude must hold positions from -1 (none) to {n - 1}, got {places.min()} to {places.max()}."
        )
    return places


def _described(value: Any) -> str:
    return f"{value.dtype} of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


def _array(tensor: Tensor) -> np.ndarray:
    """Return a tensor as an array; bfloat16, which NumPy does not have, as float32."""
    tensor = tensor.detach()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).cpu().numpy()


def _tensor(array: np.ndarray, like: Tensor, *, sums: bool = False) -> Tensor:
    """Return an array in the precision and on the device of a tensor; as sums, in float32 instead of bfloat16."""
    dtype = torch.float32 if sums and like.dtype == torch.bfloat16 else like.dtype
    return torch.from_numpy(np.ascontiguousarray(array)).to(dtype=dtype, device=like.device)


# -- gradients ---------------------------------------------------------------------------------------------------------


class _LogSums(torch.autograd.Function):
    """`log_sums`: with p the softmax and g the incoming gradient, w_ij = g_i p_ij pulls q_i and x_j towards each other."""

    @staticmethod
    def forward(ctx: Any, pairs: _Pairs, queries: Tensor, points: Any, log_weights: Any) -> Tensor:
        sums = pairs.placement.log_sums(pairs.queries, pairs.left_out)
        ctx.pairs, ctx.reached = pairs, sums > -np.inf
        ctx.save_for_backward(queries, points, log_weights)
        return _tensor(sums, queries, sums=True)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        queries, points, log_weights = ctx.saved_tensors
        pairs, g = ctx.pairs, np.where(ctx.reached, _array(gradient).astype(np.float64), 0.0)
        if pairs.queries is None and not ctx.needs_input_grad[3]:  # half a sweep of the rows among themselves
            return None, _tensor(-pairs.placement.placed.softmax_pull(pairs.asked, g), queries), None, None
        ones = np.ones((len(pairs.images), 1))
        return None, *_gradients(pairs, ones, g[:, None], queries, points, log_weights)


class _SoftMeans(torch.autograd.Function):
    """`soft_means`: with G the incoming gradient and m the means, the weights are p_ij G_i'(v_j - m_i)."""

    @staticmethod
    def forward(ctx: Any, pairs: _Pairs, queries: Tensor, points: Any, log_weights: Any, values: Tensor) -> Tensor:
        # Values about their mean, so that an offset loses no digits; the weights of a query sum to 1, or to 0 without points.
        given = _array(values).astype(np.float64)
        offset = given.mean(axis=0)
        sums = pairs.placement.placed.softmax_sums(pairs.asked, None, given - offset)
        ctx.pairs, ctx.centred, ctx.means = pairs, given - offset, sums.gathered
        ctx.reached = sums.log_sums > -np.inf
        ctx.save_for_backward(queries, points, log_weights, values)
        return _tensor(np.where(ctx.reached[:, None], sums.gathered + offset, 0.0), queries, sums=True)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        queries, points, log_weights, values = ctx.saved_tensors
        pairs, v, m = ctx.pairs, ctx.centred, ctx.means
        G = np.where(ctx.reached[:, None], _array(gradient).astype(np.float64), 0.0)
        by_values = None
        if ctx.needs_input_grad[4]:
            sums = pairs.placement.placed.softmax_sums(pairs.asked, None, None, G)
            by_values = _tensor(sums.received, values)
        if not any(ctx.needs_input_grad[1:4]):
            return None, None, None, None, by_values
        # The last "column" is a value of 1 with the gradient -G'm: it subtracts the means.
        columns = np.hstack([v, np.ones((len(v), 1))])
        slopes = np.hstack([G, -(G * m).sum(axis=1, keepdims=True)])
        return None, *_gradients(pairs, columns, slopes, queries, points, log_weights), by_values


def _gradients(
    pairs: _Pairs, columns: np.ndarray, slopes: np.ndarray, queries: Tensor, points: Any, log_weights: Any
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Return the gradients by queries, points and log-weights under the weights ``w_ij = p_ij sum_c slopes_ic columns_jc``.

    w_ij pulls q_i and x_j towards each other, and the sum over i belongs to the log-weight of j.
    """
    placed, Z, Q = pairs.placement.placed, pairs.images, pairs.own_images
    theirs, mine = (np.hstack([x, np.ones((len(x), 1))]) for x in (Z, Q))
    gathered, received = np.zeros(mine.shape), np.zeros(theirs.shape)
    some = max(_WIDTH // theirs.shape[1], 1)
    for first in range(0, columns.shape[1], some):
        column, slope = (x[:, first : first + some, None] for x in (columns, slopes))
        values, shares = (column * theirs[:, None]).reshape(len(Z), -1), (slope * mine[:, None]).reshape(len(Q), -1)
        sums = placed.softmax_sums(pairs.asked, None, values, shares)
        gathered += (slope * sums.gathered.reshape(len(Q), -1, theirs.shape[1])).sum(axis=1)
        received += (column * sums.received.reshape(len(Z), -1, theirs.shape[1])).sum(axis=1)
    by_query = gathered[:, :-1] - gathered[:, -1:] * Q
    by_point = received[:, :-1] - received[:, -1:] * Z
    return (
        _tensor(by_query + by_point if points is None else by_query, queries),
        None if points is None else _tensor(by_point, points),
        None if log_weights is None else _tensor(received[:, -1], log_weights),
    )


class _NcaLoss(torch.autograd.Function):
    """`nca_loss` of rows among themselves: the value and the gradient of the mean from the same sweeps, as in `NCA`."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, codes: np.ndarray, objective: str) -> Tensor:
        engine = engine_at(None, images) if images.device.type != "cpu" else None
        placement = prepare(engine, _array(images), leave_one_out=True, match=Match("class", codes)).at()
        if ctx.needs_input_grad[0]:
            evaluation = placement.pull(objective=objective)
            log_agreement = evaluation.log_agreement
            ctx.save_for_backward(_tensor(-evaluation.pull / len(codes), images))
        else:
            log_agreement = placement.log_agreement()
        loss = -log_agreement.mean() if objective == "likelihood" else 1.0 - np.exp(log_agreement).mean()
        return torch.tensor(
            loss, dtype=torch.float32 if images.dtype == torch.bfloat16 else images.dtype, device=images.device
        )

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (by_image,) = ctx.saved_tensors
        return gradient.to(by_image.dtype) * by_image, None, None


def _log_agreement_with(
    z: Tensor,
    codes: np.ndarray,
    points: Tensor,
    points_codes: np.ndarray,
    positions: Tensor | None,
    *,
    needs_mates: bool,
) -> Tensor:
    """Return the log of the share of each row's class among points: the log-sum over the class minus that over all."""
    every = log_sums(z, points, exclude=positions)
    places = np.full(len(z), -1) if positions is None else positions.detach().cpu().numpy()
    number, parts, order = np.full(len(points), -1), [], []
    for code in np.unique(codes):
        mine, theirs = np.flatnonzero(codes == code), np.flatnonzero(points_codes == code)
        number[theirs] = np.arange(len(theirs))
        own = np.where(places[mine] >= 0, number[places[mine]], -1)
        if needs_mates:
            _check_mates(len(theirs) - (own >= 0))
        order.append(mine)
        if not len(theirs):
            parts.append(every.new_full((len(mine),), -torch.inf))
            continue
        on = [torch.from_numpy(x).to(z.device) for x in (mine, theirs, own)]
        parts.append(log_sums(z[on[0]], points[on[1]], exclude=on[2]))
    back = torch.from_numpy(np.argsort(np.concatenate(order))).to(z.device)
    return torch.cat(parts)[back] - every


def _codes(y: Any, rows: Any, name: str) -> np.ndarray:
    """Return classes as integers that need not be consecutive, one per row."""
    if not isinstance(y, Tensor) or y.is_floating_point() or y.shape != (len(rows),):
        raise ValueError(f"{name} must be an integer tensor of shape ({len(rows)},), got {_described(y)}.")
    return y.detach().cpu().numpy()


def _check_mates(counts: np.ndarray) -> None:
    """Raise an error if a row has no possible neighbour of its class, so that the logarithm of its share is -inf."""
    alone = int((counts < 1).sum())
    if alone:
        raise ValueError(
            f"objective='likelihood' needs another point of the class of each row, got {alone} rows without one. Drop them, draw "
            "larger batches, or pass objective='accuracy'."
        )
