"""Test NeuralNCA: its terms against the equations, its training, and the shapes that it learns."""

import pickle

import numpy as np
import pytest
from estimator_checks import check_conventions
from needs import needs
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

torch = needs("torch")

from papers.face_pairs import make_face_pairs, make_faces  # noqa: E402

from vicinal import (  # noqa: E402
    NCA,
    Adam,
    Engine,
    NeuralNCA,
    Objective,
    SoftNeighborsClassifier,
    SoftNeighborsRegressor,
)
from vicinal._engine import Match, prepare  # noqa: E402
from vicinal._nca.neural_nca import ClosePairs, Neighbors, class_codes  # noqa: E402
from vicinal._nca.objectives import neighbor_objective, pair_objective  # noqa: E402
from vicinal._nca.table_network import piecewise_linear  # noqa: E402
from vicinal._supervision import Listed, listed_pairs  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(autouse=True)
def _one_thread():
    """Networks this small only lose by threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


EXPECTED_FAILURES = {
    "check_sample_weight_equivalence_on_dense_data": (
        "a row of weight 2 is left out as a whole when its own neighbours are chosen, while the second copy of a "
        "repeated row stays its neighbour; also, other batches are drawn"
    ),
}


@parametrize_with_checks(
    [NeuralNCA(max_iter=2, random_state=0)], expected_failed_checks=lambda estimator: EXPECTED_FAILURES
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
def test_scikit_learn_checks_of_pairs():
    check_conventions(NeuralNCA(objective="pairs", max_iter=3, random_state=0), EXPECTED_FAILURES)


# -- the objectives of a batch are those of the exact estimators -----------------------------------------------

N = 25
RNG = np.random.default_rng(0)
Z = RNG.normal(size=(N, 3))
VALUES = {
    "class": RNG.integers(0, 3, N),
    "gaussian": RNG.normal(size=(N, 2)),
    "dot": RNG.dirichlet(np.ones(3), N),
}
ALL = np.arange(N)


def placed(supervision):
    supervision.place(torch, "cpu")
    return supervision


def neighbors(objective, kind, weight=None):
    return placed(Neighbors(objective, kind, class_codes(VALUES[kind]) if kind == "class" else VALUES[kind], weight))


def problem_of(weight, match=None):
    return prepare("reference", Z, log_weights=np.log(weight), leave_one_out=True, match=match)


@pytest.mark.parametrize("objective", ["accuracy", "likelihood"])
@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("weighted", [False, True])
def test_value_of_all_rows_is_the_papers(kind, objective, weighted):
    weight = RNG.uniform(0.3, 2, N) if weighted else np.ones(N)
    z = torch.tensor(Z, requires_grad=True)
    value, total = neighbors(objective, kind, weight if weighted else None).value(z, ALL, ALL)
    value.backward()
    assert total == pytest.approx(weight.sum())
    problem = problem_of(weight, Match(kind, VALUES[kind]))
    expected = neighbor_objective(np.eye(3), problem, objective=objective, weight=weight)
    np.testing.assert_allclose(float(value.detach()), expected.value, rtol=1e-11)
    # The gradient by A at the identity is the gradient by the images, applied to the rows.
    np.testing.assert_allclose(z.grad.numpy().T @ Z, expected.gradient, atol=1e-11)


@pytest.mark.parametrize("objective", ["accuracy", "likelihood", "regression"])
def test_value_of_a_batch_sums_over_the_batch_and_its_candidates(objective):
    """A literal loop: row i of the batch, all other rows at the places."""
    batch, places = np.array([3, 11, 7]), np.array([3, 11, 7, 0, 1, 2, 20, 24, 15])
    source = (
        placed(Neighbors("regression", "", VALUES["gaussian"], None))
        if objective == "regression"
        else neighbors(objective, "class")
    )
    terms = []
    for i in batch:
        others = places[places != i]
        p = np.exp(-((Z[i] - Z[others]) ** 2).sum(1))
        p /= p.sum()
        if objective == "regression":
            terms.append(-np.mean((p @ VALUES["gaussian"][others] - VALUES["gaussian"][i]) ** 2))
        else:
            share = p[VALUES["class"][others] == VALUES["class"][i]].sum()
            terms.append(share if objective == "accuracy" else np.log(share))
    value, total = source.value(torch.tensor(Z[places]), batch, places)
    assert total == 3
    np.testing.assert_allclose(float(value), np.mean(terms), rtol=1e-11)


def test_rows_whose_candidates_all_disagree_have_no_slope():
    codes = np.r_[np.zeros(5, int), np.ones(5, int), 7]
    z = torch.tensor(RNG.normal(size=(11, 2)), requires_grad=True)
    every = np.arange(11)
    for objective, total in (("accuracy", 11), ("likelihood", 10)):
        source = placed(Neighbors(objective, "class", class_codes(codes), None))
        value, weight = source.value(z, every, every)
        assert weight == total
        (gradient,) = torch.autograd.grad(value, z)
        assert bool(torch.isfinite(gradient).all())
        alone, weight = source.value(z, every[-1:], every[::-1].copy())
        assert float(alone.detach()) == pytest.approx(0.0, abs=1e-30)
        (gradient,) = torch.autograd.grad(alone, z)
        np.testing.assert_allclose(gradient, 0.0, atol=1e-30)


def test_codes_of_different_classes_are_far_apart():
    codes = class_codes(np.array([0, 1, 2, 500, 2]))
    squares = ((codes[:, None] - codes) ** 2).sum(-1)
    assert squares[2, 4] == 0
    assert np.sort(squares[~np.eye(5, dtype=bool)])[2] >= 200


def test_value_of_pairs_is_equation_8():
    pairs, share, weight = np.array([[0, 1], [5, 2], [7, 20]]), np.array([1.0, 0.3, 2.0]), RNG.uniform(0.5, 2, N)
    source = placed(ClosePairs(Listed(pairs, share), weight, N))
    z = torch.tensor(Z, requires_grad=True)
    value, total = source.value(z, np.arange(3), ALL)
    value.backward()
    assert total == pytest.approx(share.sum())
    expected = pair_objective(np.eye(3), problem_of(weight), listed_pairs(pairs, share, N))
    np.testing.assert_allclose(float(value.detach()), expected.value, rtol=1e-11)
    np.testing.assert_allclose(z.grad.numpy().T @ Z, expected.gradient, atol=1e-11)
    # The places may be in any order.
    places = np.r_[source.rows_of(np.array([2])), np.setdiff1d(ALL, [7, 20])]
    shuffled, _ = source.value(torch.tensor(Z[places]), np.arange(3), places)
    np.testing.assert_allclose(float(shuffled), expected.value, rtol=1e-11)


# -- what it learns --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_parity_becomes_a_line():
    """No linear map to one dimension separates the quadrants of a plane; a network does."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(800, 4))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    train, test = (X[:400], y[:400]), (X[400:], y[400:])
    linear, network = NCA(1, max_iter=200).fit(*train), NeuralNCA(1, random_state=0).fit(*train)
    scores = [SoftNeighborsClassifier(metric).fit(*train).score(*test) for metric in (linear, network)]
    assert scores[0] < 0.75 < 0.83 < scores[1]


def test_predictors_fit_the_metric_and_keep_what_they_answer():
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    soft = SoftNeighborsClassifier(metric=NeuralNCA(max_iter=30, random_state=0)).fit(X[::2], names[::2])
    assert list(soft.classes_) == ["setosa", "versicolor", "virginica"]
    shares = soft.predict_proba(X[1::2])
    np.testing.assert_allclose(shares.sum(1), 1.0)
    assert soft.score(X[1::2], names[1::2]) == np.mean(soft.classes_[shares.argmax(1)] == names[1::2]) > 0.9


def test_regression_learns_a_curve_in_other_units():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4))
    y = 1e6 * np.sin(2 * X[:, 0]) + 1e7
    metric = NeuralNCA(4, objective="regression", max_iter=60, random_state=0)
    learned = SoftNeighborsRegressor(metric).fit(X[:300], y[:300])
    assert learned.score(X[300:], y[300:]) > 0.75
    assert SoftNeighborsRegressor().fit(X[:300], y[:300]).score(X[300:], y[300:]) < 0.7
    # The objective is minus the share of the variance that is not explained, of rows that were set aside.
    assert -0.3 < learned.metric_.objectives_[-1] < 0
    two = NeuralNCA(2, objective="regression", max_iter=2, random_state=0).fit(X, np.column_stack([y, np.ones(400)]))
    assert np.isfinite(two.objectives_).all()


def test_a_column_of_codes_has_a_weight_for_each_of_them():
    """The classes are a random function of a category with ten codes, which no line of the codes separates."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 10, 600)
    y = np.array([0, 1, 1, 0, 1, 0, 0, 1, 0, 1])[codes]
    X = np.column_stack([codes, rng.normal(size=(600, 2))])
    nca = NeuralNCA(2, random_state=0, max_iter=30).fit(X[:400], y[:400])
    assert SoftNeighborsClassifier(nca).fit(X[:400], y[:400]).score(X[400:], y[400:]) > 0.97
    encoding, n_inputs = piecewise_linear(X)
    filled = encoding(torch.tensor(X).float())
    assert filled.shape == (600, n_inputs)
    # The filled bins of the category count its code.
    of_codes = 3 + np.flatnonzero(encoding.columns.numpy() == 0)
    np.testing.assert_allclose(filled[:, of_codes].sum(1), codes, atol=1e-5)


def polar_correlations(Z, angles, heights):
    """How well the direction and the distance from some centre predict the angle and the height."""
    order = np.argsort(angles)

    def correlations(centre):
        away = Z[order] - centre
        direction, distance = np.unwrap(np.arctan2(away[:, 1], away[:, 0])), np.linalg.norm(away, axis=1)
        return abs(np.corrcoef(direction, angles[order])[0, 1]), abs(np.corrcoef(distance, heights[order])[0, 1])

    grid = [Z.mean(0) + Z.std(0) * np.array([a, b]) for a in range(-3, 4) for b in range(-3, 4)]
    first = max(grid, key=lambda centre: sum(correlations(centre)))
    return correlations(minimize(lambda centre: -sum(correlations(centre)), first, method="Nelder-Mead").x)


@pytest.mark.slow
def test_polar_coordinates_of_turned_and_scaled_faces():
    """Fig. 3: from pairs alone the network finds that pictures differ by an angle and a size."""
    shape = {"size": 14, "heights": (9.0, 14.0), "height_noise": 0.6}
    train = make_face_pairs(make_faces(60, size=28, random_state=0), 500, random_state=0, **shape)
    test = make_face_pairs(make_faces(30, size=28, random_state=1), 150, random_state=1, **shape)
    solver = Adam(batch_size=128, n_candidates=0)
    nca = NeuralNCA(2, network=100, objective="pairs", max_iter=60, random_state=0, solver=solver)
    nca.fit(train.data, pairs=train.pairs, pair_weight=train.weights)
    angle, height = polar_correlations(nca.transform(test.data), test.angles, test.heights)
    assert angle > 0.99
    assert height > 0.85


def test_soft_targets():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = np.sin(2 * X[:, 0])
    nca = NeuralNCA(1, objective=Objective("likelihood", match="gaussian"), max_iter=60, random_state=0)
    nca.fit(X[:200], y[:200])
    Z = nca.transform(X)
    nearest = np.abs(Z[200:] - Z[:200].T).argmin(1)
    assert np.corrcoef(y[nearest], y[200:])[0, 1] > 0.8
    hard, soft = (
        NeuralNCA(2, max_iter=1, random_state=0, objective=Objective(match=match)).fit(X, labels).objectives_
        for match, labels in (("class", (y > 0).astype(int)), ("dot", np.eye(2)[(y > 0).astype(int)] * 0.5))
    )
    np.testing.assert_allclose(hard[0], 4 * soft[0], rtol=1e-2)  # half of each share is 1/4 of the agreement


def test_groups_are_close_pairs():
    X, y = load_iris(return_X_y=True)
    nca = NeuralNCA(2, objective="pairs", max_iter=40, random_state=0).fit(X, y)
    assert KNeighborsClassifier(3).fit(nca.transform(X), y).score(nca.transform(X), y) > 0.9


# -- any module, any units, the same answer --------------------------------------------------------------------


def test_any_module():
    X, y = load_wine(return_X_y=True)
    module = torch.nn.Sequential(
        torch.nn.Linear(13, 20), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(20, 4)
    )
    before = {name: value.clone() for name, value in module.state_dict().items()}
    nca = NeuralNCA(max_iter=10, random_state=0, network=module).fit(X, y)
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])
    assert nca.transform(X).shape == (178, 4)
    assert list(nca.get_feature_names_out()) == [f"neuralnca{k}" for k in range(4)]
    made = NeuralNCA(3, max_iter=10, random_state=0, network=lambda d, k: torch.nn.Linear(d, k)).fit(X, y)
    assert made.transform(X).shape == (178, 3)
    paper = NeuralNCA(2, max_iter=2, random_state=0, network=100).fit(X, y).module_
    assert [type(layer).__name__ for layer in paper] == ["Linear", "Sigmoid", "Linear"]
    assert paper[0].out_features == 100


def test_output_of_a_row_does_not_depend_on_other_rows():
    X, y = load_wine(return_X_y=True)
    nca = NeuralNCA(max_iter=3, random_state=0).fit(X, y)
    np.testing.assert_allclose(nca.transform(X)[5:6], nca.transform(X[5:6]), rtol=1e-12)
    assert nca.transform(X.astype(np.float32)).dtype == np.float32


def test_reproducible_and_leaves_torchs_generator_alone():
    X, y = load_wine(return_X_y=True)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    settings = {"max_iter": 4, "solver": Adam(batch_size=50, n_candidates=60), "random_state": 3}
    one, two = (NeuralNCA(**settings).fit(X, y) for _ in range(2))
    assert torch.equal(torch.rand(3), expected)
    np.testing.assert_array_equal(one.transform(X), two.transform(X))
    other = NeuralNCA(**(settings | {"random_state": 4})).fit(X, y)
    assert not np.allclose(one.transform(X), other.transform(X))


def test_units_of_x_do_not_matter():
    X, y = load_wine(return_X_y=True)
    one = NeuralNCA(max_iter=4, random_state=0).fit(X, y)
    scaled = NeuralNCA(max_iter=4, random_state=0).fit(X * 1e4 + 7, y)
    np.testing.assert_allclose(scaled.objectives_, one.objectives_, rtol=1e-2)


def test_early_stopping_keeps_the_best_epoch_at_the_best_scale():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 20)), rng.integers(0, 2, 200)  # nothing to learn: only overfitting
    nca = NeuralNCA(random_state=0).fit(X, y)
    assert nca.converged_
    assert nca.n_iter_ < 200
    assert nca.best_epoch_ == np.argmax(nca.objectives_) + 1
    assert nca.objectives_.max() < -0.6  # about log 2: the scale is small, so the outputs are not overconfident
    fitted = NeuralNCA(max_iter=30, random_state=0, solver=Adam()).fit(X, y)
    assert fitted.objectives_[-1] > -0.3


def test_honest_convergence_warm_start_and_interrupt():
    X, y = load_wine(return_X_y=True)
    nca = NeuralNCA(max_iter=3, warm_start=True, random_state=0, network=100)
    with pytest.warns(ConvergenceWarning, match="max_iter=3 epochs were used"):
        nca.fit(X, y)
    assert not nca.converged_
    first = nca.objectives_
    nca.set_params(max_iter=10).fit(X, y)
    assert nca.objectives_[0] > first[0]

    def interrupt(weights, epoch):
        if epoch == 2:
            raise KeyboardInterrupt

    with pytest.warns(ConvergenceWarning, match="interrupted"):
        stopped = NeuralNCA(random_state=0, callback=interrupt).fit(X, y)
    assert stopped.n_iter_ == 2
    two = NeuralNCA(random_state=0, max_iter=2).fit(X, y)
    np.testing.assert_array_equal(stopped.transform(X), two.transform(X))  # the best network so far


def test_at_home_in_scikit_learn():
    X, y = load_iris(return_X_y=True, as_frame=True)
    nca = NeuralNCA(2, max_iter=20, random_state=0).set_output(transform="pandas").fit(X, y)
    assert list(nca.transform(X).columns) == ["neuralnca0", "neuralnca1"]
    again = pickle.loads(pickle.dumps(nca))
    np.testing.assert_array_equal(again.transform(X), nca.transform(X))
    assert clone(nca).get_params()["max_iter"] == 20
    pipeline = make_pipeline(NeuralNCA(max_iter=20, random_state=0), KNeighborsClassifier(3))
    search = GridSearchCV(pipeline, {"neuralnca__network": [5, 50]}, cv=3).fit(X.to_numpy(), y)
    assert search.best_score_ > 0.85
    weight = np.r_[np.zeros(50), np.ones(100)]
    assert set(np.unique(y[weight > 0])) == {1, 2}
    NeuralNCA(max_iter=2).fit(X, y, sample_weight=weight)
    few = NeuralNCA(max_iter=2, random_state=0, solver=Adam(n_candidates=None)).fit(X, y, sample_weight=weight + 0.5)
    assert np.isfinite(few.objectives_).all()


@pytest.mark.parametrize(
    ("parameters", "given", "message"),
    [
        ({"objective": "eq8"}, {"y": 0}, "objective must be one of 'accuracy', 'likelihood', 'pairs', 'regression'"),
        ({"objective": "pairs"}, {}, "NeuralNCA requires y to be passed, but the target y is None"),
        ({}, {"y": 0, "pairs": [[0, 1]]}, "only for objective='pairs', got objective='likelihood'"),
        ({"objective": "pairs"}, {"pairs": [[0, 0]]}, "a row with itself"),
        ({"network": "big"}, {"y": 0}, "network must be a number of hidden units, .* got str"),
        ({"network": lambda d, k: torch.nn.Flatten(0)}, {"y": 0}, "network must return one row of outputs"),
        ({"network": torch.nn.Linear(5, 2)}, {"y": 0}, "network cannot take rows of 3 numbers, the columns of X"),
        ({"engine": Engine("torch", device="abacus")}, {"y": 0}, "engine=.* cannot be used here: .* Use None"),
        ({"engine": "gpu"}, {"y": 0}, "engine must be one of"),
        (
            {"solver": Adam(early_stopping=True, validation_fraction=0.95), "random_state": 0},
            {"y": 0},
            "early_stopping needs more than 20 rows",
        ),
        (
            {"solver": Adam(batch_size=2, n_candidates=0), "random_state": 0},
            {"y": 2},
            "no batch had a row with a possible neighbour that agrees with it",
        ),
        ({"objective": "regression"}, {"y": 3}, "y must hold numbers"),
        ({"solver": "sgd"}, {"y": 0}, "solver must be one of 'adam' or a vicinal.Adam, got 'sgd'"),
        ({"objective": Objective(penalty=0.1)}, {"y": 0}, r"no matrix A to penalise.*solver=Adam\(weight_decay="),
        ({"max_iter": 0}, {"y": 0}, "max_iter must be at least 1"),
        (
            {"objective": Objective(match="gaussian", match_scale=-1.0)},
            {"y": 0},
            "match_scale must be a finite number greater than 0",
        ),
        ({"objective": "likelihood"}, {"y": 1}, "1 of 20 rows agree with no other row"),
    ],
)
def test_bad_input(parameters, given, message):
    X = np.random.default_rng(0).normal(size=(20, 3))
    labels = {0: np.arange(20) % 2, 1: np.r_[7, np.arange(19) % 2], 2: np.arange(20) // 2, 3: ["a", "b"] * 10}
    given = {key: labels[value] if key == "y" else value for key, value in given.items()}
    with pytest.raises((ValueError, TypeError), match=message):
        NeuralNCA(**{"max_iter": 2} | parameters).fit(X, **given)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"early_stopping": "yes"}, "early_stopping must be True or False"),
        ({"batch_size": 1}, "batch_size must be at least 2"),
        ({"learning_rate": 0.0}, "learning_rate must be a finite number greater than 0"),
        ({"weight_decay": -1.0}, "weight_decay must be a finite number at least 0"),
        ({"validation_fraction": 1.0}, "validation_fraction must be between 0 and 1"),
        ({"n_iter_no_change": 0}, "n_iter_no_change must be at least 1"),
        ({"n_candidates": -1}, "n_candidates must be at least 0"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        Adam(**options)


def test_one_class_teaches_nothing_and_says_so():
    X = np.random.default_rng(0).normal(size=(40, 3))
    with pytest.warns(UserWarning, match="all 40 targets are equal"):
        NeuralNCA(random_state=0, network=3).fit(X, np.zeros(40))


def test_nca_has_no_regression():
    with pytest.raises(ValueError, match="the kind of objective must be one of"):
        NCA(objective=Objective("regression")).fit(Z, VALUES["class"])


@pytest.mark.gpu
@pytest.mark.parametrize("objective", ["accuracy", "likelihood", "pairs"])
def test_a_gpu_learns_what_the_cpu_does(objective):
    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA device")
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 1000)
    X = rng.normal(size=(1000, 5)) + 2.0 * y[:, None] * [1.0, 0.0, 0.0, 0.0, 0.0]
    options = {"objective": objective, "network": 100, "max_iter": 8, "random_state": 0}
    fits = [NeuralNCA(2, engine=engine, **options).fit(X, y) for engine in ("torch", None)]
    np.testing.assert_allclose(fits[0].objectives_, fits[1].objectives_, rtol=0.02, atol=0.02)
    rows = torch.as_tensor(X, device="cuda")
    images = fits[0].transform(rows)
    assert images.device == rows.device
    np.testing.assert_allclose(images.cpu(), fits[0].transform(X), rtol=1e-6, atol=1e-8)
