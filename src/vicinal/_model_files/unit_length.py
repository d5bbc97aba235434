"""Rows of unit length as a module of torch; imported only where torch is wanted."""

import torch


class UnitLength(torch.nn.Module):
    """Bring rows to unit length, as scikit-learn's ``Normalizer`` does: rows of zeros stay as they are."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the rows over their lengths."""
        return torch.nn.functional.normalize(rows, dim=-1, eps=1e-30)
