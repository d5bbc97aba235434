"""Scaling of rows to unit length as a torch module; imported only if torch is used."""

import torch


class UnitLength(torch.nn.Module):
    """Scale rows to unit length, as scikit-learn's ``Normalizer`` does; rows of zeros are not changed."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the rows divided by their lengths."""
        return torch.nn.functional.normalize(rows, dim=-1, eps=1e-30)
