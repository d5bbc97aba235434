"""NCA's objectives of a batch of embedded rows, as differentiable torch expressions.

The symbols are those of `_nca/objectives`; there is no matrix A, because the rows are already transformed.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def square_distances(z: "torch.Tensor") -> "torch.Tensor":
    """Return ``|z_i - z_j|^2`` for all pairs of rows, from products of centred rows."""
    z = z - z.mean(0, keepdim=True).detach()
    squares = (z**2).sum(1)
    return (squares[:, None] + squares[None, :] - 2.0 * z @ z.T).clamp_min(0.0)


def agreement(kind: str, values: "torch.Tensor") -> "torch.Tensor":
    """Return ``m_ij`` of the rows of a batch: integer codes, scaled targets or rows of probabilities."""
    if kind == "class":
        return (values[:, None] == values[None, :]).to(dtype=values.dtype)
    if kind == "dot":
        return values @ values.T
    return (-0.5 * ((values[:, None, :] - values[None, :, :]) ** 2).sum(-1)).exp()


def neighbor_terms(
    z: "torch.Tensor", match: "torch.Tensor", objective: str, log_weights: "torch.Tensor"
) -> "tuple[torch.Tensor, torch.Tensor]":
    """Return ``a_i`` (Eq. 2) or ``log a_i`` (Eq. 6) of each row of the batch among the others.

    Return the terms, and whether each row agrees with any other row of the batch. The other rows have no gradient, and
    their logarithm, -inf, is replaced by 0.
    """
    scores = log_weights[None, :] - square_distances(z)
    scores = scores.masked_fill(_diagonal(scores), -float("inf"))
    log_p = scores.log_softmax(1)
    match = match.masked_fill(_diagonal(match), 0.0)
    has_mate = (match > 0).any(1)
    if objective == "accuracy":
        return (log_p.exp() * match).sum(1), has_mate
    # In the log domain. Rows without a class mate are kept out of the graph, because their gradient would be NaN.
    log_match = match.clamp_min(1e-300 if match.dtype.itemsize == 8 else 1e-37).log()
    log_match = log_match.masked_fill(match <= 0, -float("inf"))
    safe = log_match.masked_fill(~has_mate[:, None], 0.0)
    log_p = log_p.masked_fill(_diagonal(log_p), -float("inf"))
    log_a = (log_p + safe).logsumexp(1)
    return log_a.masked_fill(~has_mate, 0.0), has_mate


def pair_term(
    z: "torch.Tensor", pairs: "torch.Tensor", pair_weight: "torch.Tensor", log_weights: "torch.Tensor"
) -> "torch.Tensor":
    """Return the negative of Eq. 8 for the pairs of a batch, per unit of pair weight; c != d over the rows of the batch."""
    squares = square_distances(z)
    attraction = (pair_weight * squares[pairs[:, 0], pairs[:, 1]]).sum() / pair_weight.sum()
    scores = log_weights[:, None] + log_weights[None, :] - squares
    scores = scores.masked_fill(_diagonal(scores), -float("inf"))
    return -attraction - scores.flatten().logsumexp(0)


def _diagonal(matrix: "torch.Tensor") -> "torch.Tensor":
    import torch

    return torch.eye(len(matrix), dtype=torch.bool, device=matrix.device)
