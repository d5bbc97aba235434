"""The network that `NeuralNCA` trains on tables if the user passes none; imports torch."""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

_BINS = 16  # of a column: a column of no more distinct values than this and one has a weight for each of them
_INPUTS = 1024  # encoded columns at most: wide tables get fewer bins
_WIDTH, _HIDDEN = 128, 256
_FARTHEST = 4.0  # standard deviations at which a column is cut off beside its bins


class PiecewiseLinear(nn.Module):
    """The columns, followed by how much of each of their bins lies below the value, from 0 to 1 (Gorishniy et al. 2022).

    A linear layer after it may be any piecewise linear function of a column. A category with few codes has as many
    weights as codes, which is an embedding of its levels.

    Parameters
    ----------
    columns : integer Tensor of shape (n_bins,)
        The column of each bin.
    starts, widths : Tensor of shape (n_bins,)
        Where each bin begins, and how wide it is.
    """

    columns: Tensor
    starts: Tensor
    widths: Tensor

    def __init__(self, columns: Tensor, starts: Tensor, widths: Tensor) -> None:
        super().__init__()
        for name, values in (("columns", columns), ("starts", starts), ("widths", widths)):
            self.register_buffer(name, values)

    def forward(self, x: Tensor) -> Tensor:
        """Return the columns, cut off where they are far out, and the filled share of each bin."""
        filled = ((x[:, self.columns] - self.starts) / self.widths).clamp(0.0, 1.0)
        return torch.cat([x.clamp(-_FARTHEST, _FARTHEST), filled], dim=1)


class ResidualBlock(nn.Module):
    """``x + second(dropout(relu(first(norm(x)))))``; the rate of the dropout is part of the state."""

    rate: Tensor

    def __init__(self, width: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(width)
        self.first = nn.Linear(width, hidden)
        self.second = nn.Linear(hidden, width)
        self.register_buffer("rate", torch.tensor(dropout))

    def forward(self, x: Tensor) -> Tensor:
        """Return x and a correction of it."""
        hidden = torch.relu(self.first(self.norm(x)))
        return x + self.second(functional.dropout(hidden, float(self.rate), self.training))


def table_network(rows: np.ndarray, n_components: int, dropout: float) -> nn.Sequential:
    """Return a residual network of piecewise linear columns, with bins between quantiles of the rows."""
    encoding, n_inputs = piecewise_linear(rows)
    return nn.Sequential(
        encoding,
        nn.Linear(n_inputs, _WIDTH),
        ResidualBlock(_WIDTH, _HIDDEN, dropout),
        nn.BatchNorm1d(_WIDTH),
        nn.Linear(_WIDTH, n_components),
    )


def piecewise_linear(rows: np.ndarray) -> tuple[PiecewiseLinear, int]:
    """Return the encoding of the columns of some rows, and its number of outputs."""
    n_bins = max(min(_BINS, _INPUTS // rows.shape[1]), 1)
    columns, starts, widths = [], [], []
    for j, column in enumerate(rows.T):
        levels = np.unique(column)
        if len(levels) > n_bins + 1:
            levels = np.unique(np.quantile(column, np.linspace(0.0, 1.0, n_bins + 1)))
        columns.append(np.full(len(levels) - 1, j))
        starts.append(levels[:-1])
        widths.append(np.diff(levels))
    tensors = [torch.from_numpy(np.concatenate(parts)) for parts in (columns, starts, widths)]
    return PiecewiseLinear(tensors[0], tensors[1].float(), tensors[2].float()), rows.shape[1] + len(tensors[0])
