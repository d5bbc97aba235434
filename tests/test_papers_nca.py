"""Test the shared parts of the figures of the NCA paper: votes of one neighbour, splits, polar coordinates."""

import numpy as np
import pytest
from needs import needs
from papers.experiment import Setting, experiments
from papers.nca import _neighbours, _sets, equation_6, figure_1, figure_2, figure_3, section_2
from sklearn.datasets import load_iris

from vicinal import NCA


def test_one_neighbour_leaves_the_row_itself_out():
    X = np.array([[0.0, 5.0], [1.0, -5.0], [1.1, 5.0], [3.0, 0.0]])
    y = np.array([0, 1, 1, 1])
    A = np.array([[1.0, 0.0]])  # the second column does not count
    assert _neighbours.one_neighbour(A, (X, y)) == 0.75  # only the first row's neighbour is of another class
    assert _neighbours.one_neighbour(A, (X, y), (np.array([[0.1, 99.0], [2.9, 99.0]]), np.array([0, 0]))) == 0.5


def test_discriminants_are_scaled_as_they_say():
    X, y = load_iris(return_X_y=True)
    white, unit = _neighbours.whitened_discriminants(X, y), _neighbours.discriminants(X, y)
    assert np.allclose(np.linalg.norm(unit, axis=1), 1)
    within = np.mean([np.cov((X[y == k] @ white.T).T, bias=True) for k in range(3)], axis=0)
    assert np.allclose(within, np.eye(2))
    assert np.allclose(white / np.linalg.norm(white, axis=1, keepdims=True), unit)
    assert len(_neighbours.discriminants(X, y == 0)) == 1  # two classes, one direction


def test_thirds():
    assert np.bincount(_sets.thirds(np.arange(90.0))).tolist() == [30, 30, 30]


def test_splits_are_70_to_30_and_differ_by_run():
    X, y = load_iris(return_X_y=True)
    (a, _), (b, _) = _sets.split(X, y, "iris", 0)
    (other, _), _ = _sets.split(X, y, "iris", 1)
    assert (len(a), len(b)) == (105, 45)
    assert not np.array_equal(a, other)


def test_digits_are_200_a_class_and_500_others():
    y = np.repeat(np.arange(10), 300)
    (train, classes), (test, _) = _sets.split(np.arange(3000.0)[:, None], y, "digits", 0)
    assert np.bincount(classes).tolist() == [200] * 10
    assert len(test) == 500
    assert not set(train.ravel()) & set(test.ravel())


@pytest.mark.slow
def test_a_unit_has_every_metric():
    result = figure_1.measure(Setting(), set="iris", run=0, fits="paper")
    assert set(figure_1._SQUARE) < set(result["square"])
    assert set(figure_1._PLANE) < set(result["plane"])
    assert result["square"]["NCA"][0] > 0.95
    more = figure_1.measure(Setting(), set="iris", run=0, fits="more")
    assert set(figure_1._STARTS[1:]) == set(more["square"])
    assert min(accuracy[0] for accuracy in more["square"].values()) > 0.95


def test_the_literal_objective_is_that_of_nca():
    X, y = load_iris(return_X_y=True)
    nca = NCA(2, random_state=0).fit(X, y)
    assert _neighbours.expected_accuracy(nca.components_, X, y) == pytest.approx(nca.objectives_[-1], rel=1e-9)


def test_the_path_is_kept_from_the_first_to_the_last_iteration():
    found = section_2.measure(Setting(), set="iris", run=0)
    f = [value for value, _ in found["path"]]
    assert len(f) == len(section_2._PLACES)
    assert f[-1] > f[0]
    assert np.all(np.diff(f) > -1e-6)  # the climb of f, iteration by iteration


@pytest.mark.parametrize(("ends", "holds"), [(0.95, True), (0.90, False)])
def test_overtraining_is_a_fall_from_the_best(ends, holds):
    test = [*np.linspace(0.8, 0.96, len(section_2._PLACES) - 1), ends if ends < 0.95 else 0.97]
    records = [
        {
            "set": "wine",
            "run": run,
            "last": 200,
            "iterations": 200,
            "path": [[0.5 + 0.01 * i, t + 0.001 * run] for i, t in enumerate(test)],
        }
        for run in range(3)
    ]
    claim = section_2.summarise(Setting(), records).claims[0]
    assert claim.holds == holds


@pytest.mark.slow
def test_both_objectives_are_fitted_square_and_flat():
    result = equation_6.measure(Setting(), set="iris", run=0)
    assert {"square f", "square g", "plane f", "plane g"} < set(result)
    assert min(result["square f"]["accuracy"]) > 0.9
    assert -1 <= result["plane correlation"] <= 1


def test_halved_pictures_are_means_of_blocks():
    picture = np.arange(16.0).reshape(1, 16)
    assert figure_2._halved(picture, (4, 4)).tolist() == [[2.5, 4.5, 10.5, 12.5]]


def test_polar_coordinates_are_recognised_around_any_centre():
    rng = np.random.default_rng(0)
    angles, heights = rng.uniform(-45, 45, 200), rng.uniform(25, 35, 200)
    turn = np.deg2rad(2 * angles + 30)
    points = np.array([3.0, -7.0]) + heights[:, None] * np.column_stack([np.cos(turn), np.sin(turn)])
    assert min(figure_3.polar_correlations(points, angles, heights)) > 0.999
    assert max(figure_3.polar_correlations(rng.normal(size=(200, 2)), angles, heights)) < 0.5


def test_a_cartesian_map_is_no_polar_one():
    """Angle along one axis and size along the other: a straight line gives both as well as direction and distance do."""
    rng = np.random.default_rng(0)
    angles, heights = rng.uniform(-45, 45, 200), rng.uniform(25, 35, 200)
    turn = np.deg2rad(2 * angles)
    polar = heights[:, None] * np.column_stack([np.cos(turn), np.sin(turn)])
    cartesian = np.column_stack([angles / 45, (heights - 30) / 5])

    def claim(points):
        record = {"points": points, "angles": angles, "heights": heights}
        return figure_3.summarise(Setting(), [record]).claims[2]

    assert claim(polar).holds
    assert not claim(cartesian).holds
    assert min(figure_3.linear_correlations(cartesian, angles, heights)) > 0.99


def test_figure_3_is_skipped_without_torch(monkeypatch):
    from papers import experiment as module

    monkeypatch.setattr(module, "find_spec", lambda name: None if name == "torch" else object())
    third = next(experiment for experiment in experiments("nca") if experiment.name == "figure_3")
    assert "vicinal[torch]" in third.missing(Setting())


def test_every_figure_of_the_paper_is_there():
    covers = {cover for experiment in experiments("nca") for cover in experiment.module.COVERS}
    assert covers >= {"figure 1", "figure 2", "figure 3"}


@pytest.mark.parametrize("experiment", experiments("nca"), ids=lambda experiment: experiment.name)
def test_units_are_distinct(experiment):
    for setting in (Setting(), Setting(full=True)):
        units = experiment.module.units(setting)
        assert len({tuple(sorted(unit.items())) for unit in units}) == len(units)


def accuracies(nca, rival, train=(0.99, 0.95), runs=4):
    """Records of one set: NCA and all others with these test accuracies."""
    records = []
    for run in range(runs):
        wobble = 0.001 * (run % 2)
        record = {"set": "wine", "run": run, "fits": "paper"}
        for kind, names in {"square": figure_1._SQUARE, "plane": figure_1._PLANE}.items():
            record[kind] = {name: [train[1], rival] for name in names}
            record[kind]["NCA"] = [train[0], nca + wobble]
        records.append(record)
        starts = {name: [train[0], nca] for name in figure_1._STARTS[1:]}
        records.append({"set": "wine", "run": run, "fits": "more", "square": starts, "plane": {}})
    return records


def test_superior_is_more_than_equal():
    def claim(nca, rival, **options):
        return figure_1._claim("plane", 1, "NCA is superior", ["wine"], accuracies(nca, rival), **options)

    assert claim(0.95, 0.90, ahead=True).holds
    assert not claim(0.9495, 0.95, ahead=True).holds
    assert claim(0.9495, 0.95).holds
    assert not claim(0.93, 0.95).holds


def test_diagonal_nca_is_no_rival():
    records = accuracies(0.93, 0.90)
    for record in records[::2]:
        record["square"]["diagonal NCA"] = [0.99, 0.97]
    assert figure_1._claim("square", 1, "NCA is as good", ["wine"], records).holds


def test_the_best_start_is_chosen_by_the_training_rows():
    records = accuracies(0.93, 0.90)
    for record in records[1::2]:
        record["square"]["NCA from RCA"] = [1.0, 0.96]
    assert set(figure_1._best_start(records, "wine", "square", 1).values()) == {0.96}


def test_angles_are_drawn_as_they_are():
    needs("matplotlib")
    points = [[0.0, 0.0], [1.0, 5.0], [2.0, 1.0]]
    record = {
        "points": points,
        "angles": [0.0, 45.0, -45.0],
        "heights": [25.0, 30.0, 35.0],
    }
    figure = figure_3.draw(Setting(), [record, record])["figure-3"]
    assert [ax.get_aspect() for ax in figure.axes] == [1.0] * 4  # all networks are shown


def test_few_classes_have_a_legend():
    needs("matplotlib")
    points = np.random.default_rng(0).random((18, 2)).tolist()
    accuracy = {name: [1.0, 1.0] for name in (*figure_2._METHODS, figure_2._ALL)}
    shown = {"points": dict.fromkeys(figure_2._METHODS, points), "accuracy": accuracy}
    records = [{"set": str(k), "classes": [i % k for i in range(18)], **shown} for k in (5, 18)]
    axes = figure_2.draw(Setting(), records)["figure-2"].axes
    assert [ax.get_legend() is not None for ax in axes] == [False, False, True, False, False, False]
