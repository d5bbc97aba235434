"""Figure 1: a text under PCA and under LCA.

Both methods are invariant to linear maps of the points. They differ in what they normalise: PCA makes the whole text as wide as
high, so that a longer text has more strongly squeezed letters, whereas LCA makes neighbourhoods round, whatever the length.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.decomposition import PCA

from papers.drawing import panels
from papers.experiment import Claim, Records, Setting, Summary, Table
from vicinal import LCA
from vicinal.datasets import make_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TITLE = "Figure 1: a text under PCA and under LCA"
COVERS = ("figure 1",)
ORDER = 1
MINUTES = (0.1, 0.1)

_TEXTS = ("To be", "To be or not to be", "To be or not to be or not to be or not to be")


def units(setting: Setting) -> list[dict[str, Any]]:
    return [{"text": text} for text in _TEXTS]


def measure(setting: Setting, text: str) -> dict[str, Any]:
    X, letters = _points(text)
    return {name: _letter_shape(image, letters) for name, image in _images(X).items()}


def _points(text: str) -> tuple[np.ndarray, np.ndarray]:
    """Return points on the letters, equally many per letter, and the letter of each."""
    return make_text(text, 170 * len(text.replace(" ", "")), random_state=0)


def _images(X: np.ndarray) -> dict[str, np.ndarray]:
    images = {"as written": X, "PCA": PCA(whiten=True).fit_transform(X), "LCA": LCA(reg=0.0).fit_transform(X)}
    return {name: _upright(image, X) for name, image in images.items()}


def _upright(image: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Return the image turned and mirrored, which neither method cares for, to read like the text."""
    image = image - image.mean(axis=0)
    u, _, vt = np.linalg.svd(image.T @ (X - X.mean(axis=0)))
    return image @ (u @ vt)


def _letter_shape(image: np.ndarray, letters: np.ndarray) -> float:
    """Return the median ratio of width to height of the letters."""
    spans = [np.ptp(image[letters == letter], axis=0) for letter in np.unique(letters)]
    return float(np.median([width / height for width, height in spans]))


def summarise(setting: Setting, records: Records) -> Summary:
    names = ("as written", "PCA", "LCA")
    rows = [[record["text"], *(f"{record[name]:.2f}" for name in names)] for record in records]
    shape = {name: np.array([record[name] for record in records]) for name in names}
    squeezed, kept = shape["PCA"] / shape["as written"], shape["LCA"] / shape["as written"]
    claims = [
        Claim(
            "PCA compresses the letters horizontally (at least threefold)",
            squeezed[1] < 1 / 3,
            f"{1 / squeezed[1]:.1f}-fold",
        ),
        Claim(
            "LCA does not (less than 1.5-fold)",
            1 / 1.5 < kept[1] < 1.5,
            f"width over height {kept[1]:.2f} times that of the letters as written",
        ),
        Claim(
            "PCA is sensitive to the length of the text (threefold and more), LCA is not (within 1.6-fold)",
            squeezed.max() / squeezed.min() > 3 and kept.max() / kept.min() < 1.6,
            f"most over least of the three texts: {squeezed.max() / squeezed.min():.1f}-fold and {kept.max() / kept.min():.2f}-fold",
        ),
    ]
    return Summary([Table(["text", *names], rows, "Width over height of a letter, the median over letters:")], claims)


def draw(setting: Setting, records: Records) -> "dict[str, Figure]":
    images = _images(_points(_TEXTS[1])[0])
    # PCA's image is as wide as high; the others are long.
    figure, axes = panels(1, 2, size=(5.0, 3.4), width_ratios=[1, 2.6])
    for ax, name in zip(axes[0], ("PCA", "LCA"), strict=True):
        ax.scatter(*images[name].T, s=2, color="black", linewidths=0)
        ax.set(title=name, aspect="equal", xlabel="first coordinate")
        ax.locator_params(nbins=5)
    axes[0, 0].set_ylabel("second coordinate")
    axes[0, 1].locator_params(axis="y", nbins=2)
    return {"figure-1": figure}
