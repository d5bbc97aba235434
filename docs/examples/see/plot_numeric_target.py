"""
Rows with a numeric target in the plane
=======================================

:class:`vicinal.NCA` also learns from numbers: with ``match="gaussian"``, two rows agree more if their targets are
closer. The pictures below show patients who were not used for learning, coloured by the progression of their
disease in the following year.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_diabetes

from vicinal import NCA, Objective, SoftNeighborsRegressor
from vicinal.plot import plot_embedding

X, progression = load_diabetes(return_X_y=True)
progression = progression / 100  # numbers with fractions are drawn on a colour scale, whole numbers as classes
train, test, y_train, y_test = X[:300], X[300:], progression[:300], progression[300:]

objective = Objective("likelihood", match="gaussian", penalty=0.01)
nca = NCA(2, objective=objective, max_iter=100).fit(train, y_train)

fig, (left, right) = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
plot_embedding(test, y_test, ax=left).set_title("two principal components")
plot_embedding(nca.transform(test), y_test, ax=right).set_title("NCA, held-out patients")

# %%
# The soft neighbours in the plane also predict the target, with a standard deviation.

regressor = SoftNeighborsRegressor(nca).fit(train, y_train)
print(f"R2 of new patients: {regressor.score(test, y_test):.2f}")
for mean, std in zip(regressor.predict(test[:3]), regressor.predict_std(test[:3]), strict=True):
    print(f"predicted {mean:.2f} +- {std:.2f}")
