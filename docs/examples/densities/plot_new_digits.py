"""
Sample new digits
=================

Every density of vicinal can be sampled. A round kernel adds noise to a training picture, pixel by pixel. The kernels of
:class:`vicinal.ManifoldParzen` vary a picture along the directions in which similar pictures differ, so the strokes of
its samples vary while the background stays white.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from vicinal import ManifoldParzen, ParzenWindows

digits = load_digits()
threes = digits.data[digits.target == 3] / 16
used = threes.std(axis=0) > 0  # some pixels are always white
X = threes[:, used]
rows = {
    "written by hand": X[:10],
    "Parzen windows": ParzenWindows().fit(X).sample(10, random_state=0),
    "Manifold Parzen": ManifoldParzen(8, 16).fit(X).sample(10, random_state=0),
}

fig, axes = plt.subplots(3, 10, figsize=(9, 3.2), layout="constrained")
for line, (name, pictures) in zip(axes, rows.items(), strict=True):
    for ax, picture in zip(line, pictures, strict=True):
        full = np.zeros(64)
        full[used] = picture
        ax.imshow(full.reshape(8, 8), cmap="gray_r", vmin=0, vmax=1)
        ax.set_axis_off()
    line[0].set_title(name, loc="left")
