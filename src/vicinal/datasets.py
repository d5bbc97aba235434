"""The synthetic problems of the papers, and loaders for real data sets.

The generators follow scikit-learn's ``make_*`` functions: they take a size, options and ``random_state``, and return ``X, y``.

===========================  ==============================================================
LCA                          `make_two_gaussians`, `make_two_circles`, `make_five_gaussians`,
                             `add_noise_dimensions` (Figs. 2 and 3), `make_text` (Fig. 1)
Manifold Parzen              `make_spiral`, `spiral_log_density` (sec. 4.1)
RCA and NCA                  `make_balance_scale`
NCA                          `make_rings` (Fig. 2), `make_faces`, `make_face_pairs` (Fig. 3)
tests of densities           `make_anisotropic_mixture`
`vicinal demo`               `make_slanted_bars`, `make_machine_states`
===========================  ==============================================================

Real data sets are loaded by name with `load` (`available` lists them); `usps_blurred` is USPS as the papers prepared
it, by `blur_images`.  Files are read from the folder that ``data_home`` or the environment variable ``VICINAL_DATA``
names.
"""

from vicinal._datasets.demo_sets import make_machine_states, make_slanted_bars
from vicinal._datasets.face_pairs import make_face_pairs, make_faces
from vicinal._datasets.real_sets import available, blur_images, load, usps_blurred
from vicinal._datasets.spiral import make_spiral, spiral_log_density
from vicinal._datasets.text_picture import make_text
from vicinal._datasets.toy_sets import (
    add_noise_dimensions,
    make_anisotropic_mixture,
    make_balance_scale,
    make_five_gaussians,
    make_rings,
    make_two_circles,
    make_two_gaussians,
)

__all__ = [
    "add_noise_dimensions",
    "available",
    "blur_images",
    "load",
    "make_anisotropic_mixture",
    "make_balance_scale",
    "make_face_pairs",
    "make_faces",
    "make_five_gaussians",
    "make_machine_states",
    "make_rings",
    "make_slanted_bars",
    "make_spiral",
    "make_text",
    "make_two_circles",
    "make_two_gaussians",
    "spiral_log_density",
    "usps_blurred",
]


def __dir__() -> list[str]:
    return sorted(__all__)
