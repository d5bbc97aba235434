"""What the experiments of the Manifold Parzen paper are made of."""

import numpy as np

from vicinal import DensityClassifier, ParzenWindows
from vicinal.papers._experiment import Setting, experiments
from vicinal.papers.manifold_parzen import tables_3_4
from vicinal.papers.manifold_parzen._digits import ten_digits, twos


def test_twos_are_split_in_order():
    train, valid, test = twos(Setting())
    assert [len(part) for part in (train, valid)] == [100, 30]
    assert len(test) > 40
    assert train.min() == 0
    assert train.max() == 1


def test_ten_digits_keep_their_labels():
    parts = ten_digits(Setting())
    assert [len(X) == len(y) for X, y in parts] == [True] * 3
    assert all(set(y) == set(range(10)) for _, y in parts)
    assert parts[0][0].min() == -1


def test_twos_of_mnist(data_dir):
    parts = twos(Setting(full=True, data_home=str(data_dir)))
    assert [len(part) for part in parts] == [5400, 558, 1032]


def test_scores_by_the_definition():
    rng = np.random.RandomState(0)
    X, y = rng.standard_normal((60, 2)), np.repeat([3, 5, 9], 20)
    X[y == 5] += 2
    model = DensityClassifier(ParzenWindows(0.7)).fit(X, y)
    density = np.stack([np.exp(-((X[:, None] - X[y == c]) ** 2).sum(-1) / 0.98).mean(1) for c in (3, 5, 9)], axis=1)
    own = density[np.arange(60), np.repeat([0, 1, 2], 20)] / density.sum(axis=1)
    found = tables_3_4._scores(model, X, y)
    assert np.isclose(found["ancll"], -np.log(own).mean())
    assert np.isclose(found["error"], 100 * np.mean(np.repeat([0, 1, 2], 20) != density.argmax(axis=1)))


def test_every_table_is_there():
    covers = [cover for experiment in experiments("mparzen") for cover in experiment.module.COVERS]
    assert sorted(covers) == ["figure 2", "table 1", "table 2", "table 3", "table 4"]
