"""The picture of the LCA paper's Fig. 1: PCA squeezes a long text, LCA preserves the shapes of its letters.

    python examples/to_be_or_not_to_be.py [picture.png]

Both methods are invariant to linear maps of the data. They differ in what they normalise: the whole text, or the strokes of a
letter. The script prints the ratio of width to height of a letter; with a file name, it also draws the pictures (this needs
matplotlib).
"""

import sys

import numpy as np
from sklearn.decomposition import PCA

from vicinal import LCA, datasets


def upright(image, X):
    """Return the image, rotated and reflected so that it reads like the original; this does not change the metric."""
    u, _, vt = np.linalg.svd((image - image.mean(axis=0)).T @ (X - X.mean(axis=0)))
    return (image - image.mean(axis=0)) @ (u @ vt)


def letter_aspect(image, letters):
    """Return the ratio of width to height of a letter, the median over letters."""
    spans = [np.ptp(image[letters == k], axis=0) for k in np.unique(letters)]
    return float(np.median([width / height for width, height in spans]))


def images_of(n_samples=3000):
    """Return the text, its whitened and its LCA image, and the letter of each point."""
    X, letters = datasets.make_text("To be or not to be", n_samples=n_samples, random_state=0)
    images = {
        "the original": X - X.mean(axis=0),
        "PCA, whitened": upright(PCA(whiten=True).fit_transform(X), X),
        "LCA": upright(LCA().fit_transform(X), X),
    }
    return images, letters


def draw(images, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(3, 1, figsize=(9, 5), layout="constrained")
    for ax, (name, image) in zip(axes, images.items(), strict=True):
        ax.scatter(*image.T, s=0.5, color="black")
        ax.set_title(name)
        ax.set_aspect("equal")
        ax.set_axis_off()
    figure.savefig(path, dpi=150)
    plt.close(figure)


if __name__ == "__main__":
    images, letters = images_of()
    for name, image in images.items():
        print(f"{name:14s} a letter is {letter_aspect(image, letters):.2f} times as wide as high")
    if len(sys.argv) > 1:
        draw(images, sys.argv[1])
        print("written:", sys.argv[1])
