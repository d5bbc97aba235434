"""Synthetic problems: those of the papers and of `vicinal demo`.

The generators follow scikit-learn's ``make_*`` functions: they take a size, options and ``random_state``, and return ``X, y``.

===========================  ==============================================================
LCA                          `make_two_gaussians`, `make_two_circles`, `make_five_gaussians`,
                             `add_noise_dimensions` (Figs. 2 and 3), `make_text` (Fig. 1)
Manifold Parzen              `make_spiral` (sec. 4.1)
tests of densities           `make_anisotropic_mixture`
`vicinal demo`               `make_slanted_bars`, `make_machine_states`
===========================  ==============================================================
"""

from vicinal._datasets.demo_sets import make_machine_states, make_slanted_bars
from vicinal._datasets.text_picture import make_text
from vicinal._datasets.toy_sets import (
    add_noise_dimensions,
    make_anisotropic_mixture,
    make_five_gaussians,
    make_spiral,
    make_two_circles,
    make_two_gaussians,
)

__all__ = [
    "add_noise_dimensions",
    "make_anisotropic_mixture",
    "make_five_gaussians",
    "make_machine_states",
    "make_slanted_bars",
    "make_spiral",
    "make_text",
    "make_two_circles",
    "make_two_gaussians",
]


def __dir__() -> list[str]:
    return sorted(__all__)
