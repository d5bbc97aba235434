"""
Why is this row unusual?
========================

The detector below was fitted to harmless tumours only. For a new, unusual tumour, it compares every measurement with the values
that are expected *given the other measurements of the same row*. The bars are 90 % intervals, and the dots are the actual
values.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler

from vicinal import LCA, DensityOutlierDetector
from vicinal.plot import plot_outlier

data = load_breast_cancer(as_frame=True)
X = data.data.iloc[:, :10]
harmless, malignant = X[data.target == 1], X[data.target == 0]
scaler = StandardScaler().set_output(transform="pandas").fit(harmless)
detector = DensityOutlierDetector(LCA()).fit(scaler.transform(harmless))

new = scaler.transform(malignant)
unusual = detector.score_samples(new).argsort()
fig, ax = plt.subplots(figsize=(8, 4.5), layout="constrained")
plot_outlier(detector, new.iloc[[unusual[40]]], ax=ax)

# %%
# Explanations in words for three tumours:

why = detector.explain(new.iloc[unusual[[40, 60, 80]]])
for i in range(3):
    print(f"- {why.reasons(i)[0]}")
