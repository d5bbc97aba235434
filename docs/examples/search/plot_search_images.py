"""
Pictures that find each other
=============================

:class:`vicinal.AnchorNCA` learns from labelled pictures which differences of pixels do not matter. The rows of the
figure show queries whose nearest picture was wrong by the cosine of the raw pixels, and what the learned map finds
instead. No query and no stored picture was used for learning.
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

before = retrieval.search(None, corpus[:, used], 3)
after = retrieval.search(None, corpus[:, used], 3, model=adapter)
changed = (y_corpus[before.indices[:, 0]] != y_corpus) & (y_corpus[after.indices[:, 0]] == y_corpus)
shown = np.flatnonzero(changed)[:5]

fig, axes = plt.subplots(len(shown), 7, figsize=(8, 1.2 * len(shown)), layout="constrained", squeeze=False)
for line, query in zip(axes, shown, strict=True):
    for ax, row in zip(line, [query, *before.indices[query], *after.indices[query]], strict=True):
        ax.imshow(corpus[row].reshape(8, 8), cmap="gray_r" if y_corpus[row] == y_corpus[query] else "Reds")
        ax.set_xticks([])
        ax.set_yticks([])
for place, title in ((0, "query"), (2, "raw pixels"), (5, "AnchorNCA")):
    axes[0, place].set_title(title)

# %%
# Wrong answers are red. The gain is not only in these five:

raw = retrieval.evaluate(None, corpus[:, used], y_corpus)
learned = retrieval.evaluate(None, corpus[:, used], y_corpus, model=adapter)
low, high = learned.difference(raw).intervals["precision@10"]
print(f"precision@10: {raw.mean['precision@10']:.3f} before, {learned.mean['precision@10']:.3f} after")
print(f"gain, 95 % interval: {low:+.3f} to {high:+.3f}")
