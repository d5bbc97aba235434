"""When distances by matrix products are accurate enough."""

import numpy as np

# |q - z|^2 = |q|^2 + |z|^2 - 2 q'z errs by about eps * max|z|^2.  The error is absolute in the exponent of a weight,
# hence relative in the weight: these are the largest errors we accept before falling back to differences.
_TOLERANCE = {np.dtype(np.float64): 2e-11, np.dtype(np.float32): 2e-4}


def products_are_accurate(largest_square_norm, dtype):
    """Whether |q|^2 + |z|^2 - 2 q'z is accurate enough for coordinates of that square norm."""
    dtype = np.dtype(dtype)
    return float(np.finfo(dtype).eps) * largest_square_norm <= _TOLERANCE[dtype]
