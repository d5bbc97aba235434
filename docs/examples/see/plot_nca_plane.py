"""
Labelled rows in the plane
==========================

The first two principal components show where rows vary most, which is rarely where classes differ. :class:`vicinal.NCA`
finds the plane in which the neighbours of a row have its class. Both pictures below show wines that were not used for
learning, because a flexible map can overfit its training rows.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

from vicinal import NCA
from vicinal.plot import plot_embedding

X, cultivar = load_wine(return_X_y=True)
train, test, y_train, y_test = train_test_split(X, cultivar, test_size=0.4, stratify=cultivar, random_state=0)
scaler = StandardScaler().fit(train)
train, test = scaler.transform(train), scaler.transform(test)

nca = NCA(n_components=2, random_state=0).fit(train, y_train)

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4.5), layout="constrained")
plot_embedding(test, y_test, ax=left).set_title("two principal components")
plot_embedding(nca.transform(test), y_test, ax=right).set_title("NCA, held-out wines")

# %%
# The picture can be trusted if two learned columns predict as well as all thirteen, as they do here.

for name, rows, new in (("13 columns", train, test), ("2 of NCA", nca.transform(train), nca.transform(test))):
    accuracy = KNeighborsClassifier(5).fit(rows, y_train).score(new, y_test)
    print(f"{name:<11} accuracy of five neighbours {accuracy:.3f}")
