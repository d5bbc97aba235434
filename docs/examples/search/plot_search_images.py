"""
Search for similar pictures
===========================

:class:`vicinal.AnchorNCA` learns from labelled pictures which differences of pixels do not matter. Each line of the
figure shows a query, its six nearest pictures by the cosine of the raw pixels, and its six nearest pictures under the
learned map; wrong results are red. These are the five queries that improve most. Neither the queries nor the stored
pictures were used for learning.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from vicinal import AnchorNCA, retrieval

X, digit = load_digits(return_X_y=True)
used = X.std(axis=0) > 0.3  # some pixels are always white
known, corpus, y_known, y_corpus = train_test_split(X, digit, test_size=0.5, random_state=0, stratify=digit)
adapter = make_pipeline(Normalizer(), AnchorNCA(32, temperature=0.1, random_state=0), Normalizer())
adapter.fit(known[:, used], y_known)

before = retrieval.search(None, corpus[:, used], 6)
after = retrieval.search(None, corpus[:, used], 6, model=adapter)
n_right = [(y_corpus[found.indices] == y_corpus[:, None]).sum(axis=1) for found in (before, after)]
shown = np.argsort(n_right[0] - n_right[1], kind="stable")[:5]

fig, axes = plt.subplots(5, 15, figsize=(10, 4), layout="constrained", width_ratios=[1, 0.3, *[1] * 6, 0.3, *[1] * 6])
for ax in axes[:, [1, 8]].ravel():
    ax.set_axis_off()
for line, query in zip(axes, shown, strict=True):
    places = np.r_[0, 2:8, 9:15]
    for ax, row in zip(line[places], [query, *before.indices[query], *after.indices[query]], strict=True):
        ax.imshow(corpus[row].reshape(8, 8), cmap="gray_r" if y_corpus[row] == y_corpus[query] else "Reds")
        ax.set_xticks([])
        ax.set_yticks([])
for place, title in ((0, "query"), (4, "raw pixels"), (11, "AnchorNCA")):
    axes[0, place].set_title(title)

# %%
# Over all queries the gain is smaller, but its interval is above zero:

raw = retrieval.evaluate(None, corpus[:, used], y_corpus)
learned = retrieval.evaluate(None, corpus[:, used], y_corpus, model=adapter)
low, high = learned.difference(raw).intervals["precision@10"]
print(f"precision@10: {raw.mean['precision@10']:.3f} before, {learned.mean['precision@10']:.3f} after")
print(f"gain, 95 % interval: {low:+.3f} to {high:+.3f}")
