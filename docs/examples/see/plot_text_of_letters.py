"""
LCA whitens neighbourhoods, PCA the whole data set
==================================================

This is Figure 1 of the LCA paper. The rows are the pixels of a line of text. PCA whitening uses the spread of all rows, so it
squeezes the long line into a square. :class:`vicinal.LCA` uses the spread of each row about its neighbours, which are the
strokes of one letter, and preserves the shape of the letters.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import PCA

from vicinal import LCA
from vicinal.datasets import make_text

X, letter = make_text("To be or not to be", n_samples=1500, random_state=0)


def upright(image):
    """Rotate the image so that it reads like the text; a rotation does not change a metric."""
    u, _, vt = np.linalg.svd((image - image.mean(axis=0)).T @ (X - X.mean(axis=0)))
    return (image - image.mean(axis=0)) @ (u @ vt)


images = {
    "the rows": X,
    "whitened by PCA": upright(PCA(whiten=True).fit_transform(X)),
    "LCA": upright(LCA().fit_transform(X)),
}
fig, axes = plt.subplots(3, 1, figsize=(9, 4.4), layout="constrained")
for ax, (name, image) in zip(axes, images.items(), strict=True):
    ax.scatter(*image.T, s=2, c=letter % 10, cmap="tab10")
    ax.set_title(name)
    ax.set_aspect("equal")
    ax.set_axis_off()
