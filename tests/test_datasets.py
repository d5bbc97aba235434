"""Test that the generators follow their papers, and that the loaders find, convert or fetch data or explain how to."""

import itertools
import urllib.error

import numpy as np
import pytest
import scipy.sparse
from scipy.ndimage import rotate
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn import datasets as sklearn_datasets
from sklearn.utils import Bunch

from vicinal import datasets
from vicinal._datasets.real_set_table import REAL_SETS
from vicinal._datasets.spiral import _curve

GENERATORS = [
    datasets.make_two_gaussians,
    datasets.make_two_circles,
    datasets.make_five_gaussians,
    datasets.make_rings,
    datasets.make_spiral,
    datasets.make_text,
    datasets.make_slanted_bars,
    datasets.make_machine_states,
]


# --- generators -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", GENERATORS)
def test_generators_repeat_with_a_seed_and_give_the_size_asked_for(make):
    X, y = make(n_samples=83, random_state=7)
    again, _ = make(n_samples=83, random_state=np.random.RandomState(7))
    other, _ = make(n_samples=83, random_state=8)
    assert len(X) == len(y) == 83
    assert np.isfinite(X).all()
    np.testing.assert_array_equal(X, again)
    assert not np.array_equal(X, other)


def test_two_gaussians():
    X, y = datasets.make_two_gaussians(40_000, random_state=0)
    np.testing.assert_array_equal(np.bincount(y), [20_000, 20_000])
    for label, center in enumerate([(-3, 0), (3, 0)]):
        np.testing.assert_allclose(X[y == label].mean(axis=0), center, atol=0.03)
        np.testing.assert_allclose(np.cov(X[y == label].T), np.eye(2), atol=0.05)
    assert 0 < y[:100].sum() < 100  # shuffled


def test_two_circles():
    X, y = datasets.make_two_circles(5001, noise_std=0, random_state=0)
    np.testing.assert_allclose(np.linalg.norm(X, axis=1), y + 1, rtol=1e-12)
    assert sorted(np.bincount(y)) == [2500, 2501]
    noisy, y = datasets.make_two_circles(20_000, random_state=0)
    assert np.linalg.norm(noisy[y == 1], axis=1).std() == pytest.approx(0.1, rel=0.03)


@pytest.mark.parametrize("n", [5, 8, 83, 800])
def test_five_gaussians(n):
    _, y = datasets.make_five_gaussians(n, random_state=0)
    counts = np.bincount(y, minlength=5)
    assert counts.sum() == n
    assert np.ptp(counts[1:]) <= 1
    if n % 8 == 0:  # "four times as many datapoints"
        np.testing.assert_array_equal(counts[0], 4 * counts[1:])


def test_five_gaussians_have_nearly_gaussian_marginals():
    X, _ = datasets.make_five_gaussians(400_000, random_state=0)
    fourth = (X**4).mean(axis=0) - 3 * (X**2).mean(axis=0) ** 2
    np.testing.assert_allclose(fourth, 5**4 / 16, rtol=0.05)


@pytest.mark.parametrize("units", [(1, 1), (1e-9, 1e9), (1e140, 1e-140)])
def test_noise_dimensions(units):
    X, _ = datasets.make_two_gaussians(3000, random_state=0)
    X = (X @ [[1, 0.5], [0, 1]] + 5) * units
    noisy = datasets.add_noise_dimensions(X, 4, random_state=0)
    assert noisy.shape == (3000, 6)
    np.testing.assert_allclose(noisy[:, :2].mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(np.cov(noisy[:, :2].T, bias=True), np.eye(2), atol=1e-10)
    np.testing.assert_allclose(np.cov(noisy.T), np.eye(6), atol=0.1)
    # Whitening keeps the information: the old columns are a linear function of the new ones.
    design = np.column_stack([noisy[:, :2], np.ones(3000)])
    scaled = X / units
    fitted = design @ np.linalg.lstsq(design, scaled, rcond=None)[0]
    np.testing.assert_allclose(fitted, scaled, atol=1e-10)
    assert datasets.add_noise_dimensions(X, 0).shape == (3000, 2)


def test_rings():
    X, y = datasets.make_rings(5000, thickness=0, random_state=0)
    np.testing.assert_array_equal(np.bincount(y), [1000] * 5)
    np.testing.assert_allclose(np.linalg.norm(X[:, :2], axis=1), y + 1, rtol=1e-12)
    assert np.abs(np.corrcoef(np.column_stack([X, y]).T)[2, [0, 1, 3]]).max() < 0.05  # noise tells nothing
    assert X[:, 2].std() > 1.5 * X[:, :2].std(axis=0).max()  # and PCA cannot leave it out


def test_balance_scale_by_its_rule():
    _, y = datasets.make_balance_scale()
    expected = []
    for left_weight, left, right_weight, right in itertools.product(range(1, 6), repeat=4):
        torque = left_weight * left - right_weight * right
        expected.append("L" if torque > 0 else "R" if torque < 0 else "B")
    assert ["LBR"[label] for label in y] == expected


def test_anisotropic_mixture_knows_its_density():
    for d, m in [(1, 1), (3, 4)]:
        mixture = datasets.make_anisotropic_mixture(50, d, n_components=m, condition=1e3, random_state=0)
        density = sum(
            weight * multivariate_normal(mean, mixture.covariance).pdf(mixture.data)
            for weight, mean in zip(mixture.weights, mixture.means, strict=True)
        )
        np.testing.assert_allclose(mixture.log_density, np.log(density), rtol=1e-9)
        assert np.linalg.cond(mixture.covariance) == pytest.approx(1e3 if d > 1 else 1)
    big = datasets.make_anisotropic_mixture(50_000, 3, random_state=1)
    residual = big.data - big.means[big.target]
    np.testing.assert_allclose(np.cov(residual.T), big.covariance, atol=0.02)


def test_text_is_legible_from_its_points():
    """Every pixel of ink contains points and no other pixel does, so the picture can be reconstructed."""
    X, y = datasets.make_text("bot", 5000, random_state=0)
    canvas = np.full((7, 16), ".")
    canvas[6 - X[:, 1].astype(int), X[:, 0].astype(int)] = "#"
    assert ["".join(row) for row in canvas] == [
        "#............#..",
        "#............#..",
        "####...###..###.",
        "#...#.#...#..#..",
        "#...#.#...#..#..",
        "#...#.#...#..#..",
        "####...###...##.",
    ]
    np.testing.assert_array_equal(y, np.searchsorted([6, 12], X[:, 0], side="right"))


def test_text_keeps_its_height_when_it_grows():
    short, _ = datasets.make_text("to be", 4000, random_state=0)
    long, letters = datasets.make_text("To be or not to be", 4000, random_state=0)
    assert long[:, 0].max() > 2.5 * short[:, 0].max()
    assert long[:, 1].max() <= 7
    assert set(letters) == {i for i, letter in enumerate("To be or not to be") if letter != " "}


# --- the spiral -------------------------------------------------------------------------------------------


def test_spiral_follows_its_formula():
    X, t = datasets.make_spiral(1000, noise_std=0, random_state=0)
    np.testing.assert_allclose(X[:, 0], 0.04 * t * np.sin(t), atol=1e-15)
    np.testing.assert_allclose(X[:, 1], 0.04 * t * np.cos(t), atol=1e-15)
    assert t.min() >= 3
    assert t.max() <= 15
    noisy, t = datasets.make_spiral(20_000, random_state=0)
    np.testing.assert_allclose((noisy - _curve(t)).std(axis=0), 0.01, rtol=0.02)


def literal_spiral_log_density(points, noise):
    """The integral over t on one fine grid: Gauss-Legendre with 10 nodes on each of 60,000 pieces."""
    nodes, weights = np.polynomial.legendre.leggauss(10)
    half = 12 / 60_000 / 2
    t = (np.linspace(3 + half, 15 - half, 60_000)[:, None] + half * nodes).ravel()
    log_weight = np.log(np.tile(half * weights, 60_000) / 12)
    log_density = []
    for x, y in points:
        square = (x - 0.04 * t * np.sin(t)) ** 2 + (y - 0.04 * t * np.cos(t)) ** 2
        log_density.append(logsumexp(log_weight - square / (2 * noise**2)) - np.log(2 * np.pi * noise**2))
    return log_density


@pytest.mark.parametrize("noise", [0.01, 0.2])
def test_spiral_density_literal(noise):
    inside, _ = datasets.make_spiral(2, noise_std=noise, random_state=1)
    end = 0.04 * 15 * np.array([np.sin(15), np.cos(15)])
    points = np.vstack([inside, end + 0.5 * noise, [0.0, 0.0], [1.0, -1.5]])
    expected = literal_spiral_log_density(points, noise)
    np.testing.assert_allclose(datasets.spiral_log_density(points, noise_std=noise), expected, rtol=1e-12, atol=1e-12)


def test_spiral_density_integrates_to_one():
    grid = np.linspace(-1.1, 1.1, 71)
    points = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
    total = np.exp(datasets.spiral_log_density(points, noise_std=0.05)).sum() * (grid[1] - grid[0]) ** 2
    assert total == pytest.approx(1, abs=1e-9)


def test_spiral_density_far_away():
    """The nearest point of the curve decides: log p ~ -distance^2 / (2 noise^2), finite, never NaN."""
    far = np.array([[50.0, 0.0], [0.0, 1e6], [1e9, 0.0], [1e13, -1e14], [1e16, 1e15], [1e100, 1e100]])
    t = np.linspace(3, 15, 200_001)
    distance = np.array([np.linalg.norm(point - _curve(t), axis=1).min() for point in far])
    np.testing.assert_allclose(datasets.spiral_log_density(far), -(distance**2) / 2e-4, rtol=1e-5)
    for noise in (1e-3, 1e-12, 1e-100):
        on_curve = datasets.spiral_log_density(_curve(np.array([5.0])), noise_std=noise)
        # A straight line there, locally: density 1 / (12 speed) per length, times N(0; 0, noise^2) across.
        straight = -np.log(12 * 0.04 * np.sqrt(26)) - np.log(np.sqrt(2 * np.pi) * noise)
        if noise > 1e-14:
            np.testing.assert_allclose(on_curve, straight, rtol=1e-4)
        assert np.isfinite(on_curve).all()


@pytest.mark.slow
def test_spiral_entropy():
    """The mean negative log-likelihood of the truth, by quadrature over t and the noise: -1.792 nats."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(6)
    weights = weights / weights.sum()
    t = 3 + 12 * (np.arange(200) + 0.5) / 200
    mean = sum(
        wa * wb * datasets.spiral_log_density(_curve(t) + 0.01 * np.array([a, b])).mean()
        for (a, wa), (b, wb) in itertools.product(zip(nodes, weights, strict=True), repeat=2)
    )
    assert -mean == pytest.approx(-1.792, abs=2e-3)


# --- faces ------------------------------------------------------------------------------------------------


def test_face_pairs_follow_the_paper():
    faces = datasets.make_faces(12, random_state=0)
    assert faces.min() >= 0
    assert faces.max() <= 1
    groups = ["ann", "bob", "cid"] * 4
    pairs = datasets.make_face_pairs(faces, 2000, groups=groups, size=9, random_state=0)
    first, second = pairs.pairs.T
    assert all(groups[a] != groups[b] for a, b in zip(pairs.sources[first], pairs.sources[second], strict=True))
    turn, grow = pairs.angles[second] - pairs.angles[first], pairs.heights[second] - pairs.heights[first]
    np.testing.assert_allclose(pairs.weights, np.exp(-(turn**2) / (2 * 1.22**2) - grow**2 / (2 * 1.5**2)), rtol=1e-9)
    assert turn.std() == pytest.approx(1.22, rel=0.05)
    assert grow.std() == pytest.approx(1.5, rel=0.05)
    assert np.abs(pairs.angles[first]).max() <= 45
    assert pairs.heights[first].min() >= 25
    assert pairs.heights[first].max() <= 35
    assert pairs.data.shape == (4000, 81)


def test_face_pairs_leave_an_unturned_picture_alone():
    faces = datasets.make_faces(4, size=31, random_state=0)
    still = datasets.make_face_pairs(
        faces, 5, size=31, max_angle=0, heights=(31, 31), angle_noise=0, height_noise=0, random_state=0
    )
    np.testing.assert_allclose(still.data.reshape(-1, 31, 31), faces[still.sources], atol=1e-12)
    np.testing.assert_array_equal(still.weights <= 1, True)


def test_face_pairs_turn_as_scipy_does():
    faces = datasets.make_faces(4, size=31, random_state=0)
    turned = datasets.make_face_pairs(faces, 3, size=31, heights=(31, 31), height_noise=0, random_state=0)
    for picture, source, angle in zip(turned.data, turned.sources, turned.angles, strict=True):
        expected = rotate(faces[source], angle, reshape=False, order=1)
        np.testing.assert_allclose(picture.reshape(31, 31), expected, atol=1e-9)


# --- real sets: files -------------------------------------------------------------------------------------


@pytest.fixture
def no_network(monkeypatch):
    """No folder is set, and a download fails the test."""
    monkeypatch.delenv("VICINAL_DATA", raising=False)

    def refuse(*args, **kwargs):
        raise AssertionError("a test must not download")

    for fetch in ("fetch_openml", "fetch_covtype", "fetch_olivetti_faces"):
        monkeypatch.setattr(sklearn_datasets, fetch, refuse)


def write_usps(folder, n_train=7291, **change):
    rng = np.random.default_rng(0)
    X = rng.integers(-1000, 1001, size=(9298, 256)).astype(np.int16)
    y = rng.integers(0, 10, size=9298).astype(np.uint8)
    arrays = {"X_train": X[:n_train], "y_train": y[:n_train], "X_test": X[n_train:], "y_test": y[n_train:]}
    arrays.update(change)
    np.savez(folder / "usps.npz", **{key: value for key, value in arrays.items() if value is not None})
    return X, y


def test_load_reads_files(tmp_path, no_network, monkeypatch):
    X, y = write_usps(tmp_path)
    usps = datasets.load("usps", tmp_path)
    assert isinstance(usps, Bunch)
    np.testing.assert_array_equal(usps.data, X / 1000)
    np.testing.assert_array_equal(usps.target, y)
    assert usps.n_train == 7291
    assert usps.image_shape == (16, 16)
    assert len(usps.feature_names) == 256
    assert usps.target_names[7] == "7"
    assert "USPS" in usps.DESCR
    train, test = (
        datasets.load("usps", tmp_path, subset="train"),
        datasets.load("usps", tmp_path, subset="test"),
    )
    np.testing.assert_array_equal(np.vstack([train.data, test.data]), usps.data)
    data, target = datasets.load("usps", str(tmp_path), return_X_y=True, subset="test")
    np.testing.assert_array_equal(data, test.data)
    np.testing.assert_array_equal(target, test.target)
    monkeypatch.setenv("VICINAL_DATA", str(tmp_path))
    np.testing.assert_array_equal(datasets.load("usps").data, usps.data)
    # The folder given by the argument comes first, then the variable's.
    np.testing.assert_array_equal(datasets.load("usps", tmp_path / "none").data, usps.data)


def test_usps_blurred(tmp_path, no_network):
    X, y = write_usps(tmp_path)
    pool = datasets.usps_blurred(tmp_path)
    assert pool.data.shape == (8298, 256)
    np.testing.assert_array_equal(pool.target, np.r_[y[:6291], y[7291:]])
    assert "n_train" not in pool
    sizes = {"train": 6291, "validation": 1000, "test": 2007, "all": 9298}
    parts = {subset: datasets.usps_blurred(tmp_path, subset=subset) for subset in sizes}
    assert {subset: len(part.data) for subset, part in parts.items()} == sizes
    stacked = np.vstack([parts[part].data for part in ("train", "validation", "test")])
    np.testing.assert_array_equal(stacked, parts["all"].data)
    np.testing.assert_array_equal(pool.data, np.vstack([parts["train"].data, parts["test"].data]))
    # One row by hand: separable weights exp(-u^2 / (2 sd^2)), cut at 3 pixels (4 sd), background -1 outside.
    offsets = np.arange(-3, 4)
    weight = np.exp(-(offsets**2) / (2 * 0.75**2))
    weight /= weight.sum()
    padded = np.pad(X[0].reshape(16, 16) / 1000, 3, constant_values=-1)
    expected = np.array([[weight @ padded[r : r + 7, c : c + 7] @ weight for c in range(16)] for r in range(16)])
    np.testing.assert_allclose(pool.data[0].reshape(16, 16), expected, atol=1e-12)
    data, target = datasets.usps_blurred(tmp_path, return_X_y=True)
    assert (len(data), len(target)) == (8298, 8298)


def test_blank_pictures_stay_blank():
    np.testing.assert_allclose(datasets.blur_images(np.full((2, 12), -1.0), (3, 4)), -1, atol=1e-14)
    picture = np.arange(12.0)[None]
    np.testing.assert_array_equal(datasets.blur_images(picture, (3, 4), sd=0), picture)
    assert datasets.blur_images(picture.astype(np.float32), (3, 4)).dtype == np.float32


def test_extras_and_units(tmp_path, no_network):
    words = [f"w{i}" for i in range(99_999)] + ["naïve"]
    X = np.zeros((100_000, 100), dtype=np.int8)
    X[0, :2] = [-127, 5]
    text = np.frombuffer("\n".join(words).encode(), dtype=np.uint8)
    np.savez(tmp_path / "glove_100d_100k_int8.npz", X=X, words=text)
    glove = datasets.load("glove", tmp_path)
    assert glove.target is None
    assert glove.words == words
    assert glove.data.dtype == np.float32
    np.testing.assert_allclose(glove.data[0, :2], [-127 * 0.032, 5 * 0.032], rtol=1e-7)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X_test": None}, "usps.npz must hold the arrays X_test, got"),
        ({"X_test": np.zeros((5, 256))}, r"must hold \(9298, 256\) values in all, got \(7296, 256\)"),
        ({"X_test": np.array([{}, None], dtype=object)}, "not a readable .npz"),
    ],
)
def test_damaged_files(tmp_path, no_network, change, message):
    write_usps(tmp_path, **change)
    with pytest.raises(ValueError, match=message):
        datasets.load("usps", tmp_path)


def test_not_an_archive(tmp_path, no_network):
    (tmp_path / "usps.npz").write_bytes(b"hello")
    with pytest.raises(ValueError, match=r"not a readable \.npz.*Rebuild"):
        datasets.load("usps", tmp_path)


# --- real sets: without files -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["iris", "wine", "breast_cancer_wdbc", "balance_scale"])
def test_sets_that_need_no_file(name, no_network):
    bunch = datasets.load(name, download_if_missing=False)
    assert bunch.data.shape == REAL_SETS[name].shape
    assert len(bunch.feature_names) == bunch.data.shape[1]
    assert bunch.target.dtype == np.int64


def fake_openml(labels, X):
    def fetch(*, data_id, as_frame, data_home, parser):
        fetch.called_with = (data_id, data_home)
        return Bunch(data=X, target=np.array(labels, dtype=object))

    return fetch


def test_openml(monkeypatch, no_network, tmp_path):
    labels = ["g"] * 225 + ["b"] * 126
    X = np.random.default_rng(0).normal(size=(351, 34))
    fetch = fake_openml(labels, X)
    monkeypatch.setattr(sklearn_datasets, "fetch_openml", fetch)
    ionosphere = datasets.load("ionosphere", tmp_path)
    assert fetch.called_with == (59, tmp_path)
    np.testing.assert_array_equal(ionosphere.data, X)
    np.testing.assert_array_equal(ionosphere.target, [1] * 225 + [0] * 126)
    with pytest.raises(FileNotFoundError, match=r"uci_ionosphere\.npz"):
        datasets.load("ionosphere", download_if_missing=False)


@pytest.mark.parametrize(
    ("labels", "columns", "message"),
    [
        (["g"] * 224 + ["b"] * 127, 34, "not the set that the papers used.*got.*127"),
        (["g"] * 225 + ["b"] * 126, 33, r"not the set that the papers used.*\(351, 33\)"),
        (["g"] * 225 + ["x"] * 126, 34, r"unknown labels \['x'\]"),
    ],
)
def test_another_set_under_the_same_number_is_refused(monkeypatch, no_network, labels, columns, message):
    monkeypatch.setattr(sklearn_datasets, "fetch_openml", fake_openml(labels, np.zeros((351, columns))))
    with pytest.raises(ValueError, match=message):
        datasets.load("ionosphere")


def test_a_split_in_another_order_is_refused(monkeypatch, no_network):
    counts = [1553, 1269, 929, 824, 852, 716, 834, 792, 708, 821]
    labels = [str(digit + 1) for digit in np.repeat(np.arange(10), counts)]  # all rows there, but sorted
    monkeypatch.setattr(sklearn_datasets, "fetch_openml", fake_openml(labels, np.zeros((9298, 256))))
    with pytest.raises(ValueError, match="not the set that the papers used"):
        datasets.load("usps")


def test_missing_values_are_zeros(monkeypatch, no_network):
    X = np.ones((699, 9))
    X[3, 5] = np.nan
    labels = ["benign"] * 458 + ["malignant"] * 241
    monkeypatch.setattr(sklearn_datasets, "fetch_openml", fake_openml(labels, X))
    assert datasets.load("breast_cancer_original").data[3, 5] == 0


def test_covertype_and_olivetti_come_from_scikit_learn(monkeypatch, no_network):
    real = REAL_SETS["covertype"]
    n = real.shape[0]
    data = np.zeros((n, 54), dtype=np.int16)
    data[:, 0], data[:, 12], data[:, 14 + 39] = 2500, 1, 1
    target = np.repeat(list(real.counts), list(real.counts.values())).astype(np.int32)
    monkeypatch.setattr(sklearn_datasets, "fetch_covtype", lambda data_home: Bunch(data=data, target=target))
    covertype = datasets.load("covertype")
    assert covertype.data.shape == (n, 10)
    assert (covertype.data[5, 0], covertype.wilderness[5], covertype.soil[5]) == (2500, 2, 39)
    faces = Bunch(data=np.ones((400, 4096), dtype=np.float32), target=np.repeat(np.arange(40), 10))
    monkeypatch.setattr(sklearn_datasets, "fetch_olivetti_faces", lambda data_home: faces)
    olivetti = datasets.load("olivetti_faces")
    assert olivetti.data.shape == (400, 4096)
    assert olivetti.image_shape == (64, 64)


@pytest.mark.parametrize("name", ["mnist", "covertype", "olivetti_faces"])
def test_a_failed_download_says_what_to_do(monkeypatch, no_network, name):
    def down(**kwargs):
        raise urllib.error.URLError("no route")

    for fetch in ("fetch_openml", "fetch_covtype", "fetch_olivetti_faces"):
        monkeypatch.setattr(sklearn_datasets, fetch, down)
    with pytest.raises(FileNotFoundError, match=r"download failed.*no route.*VICINAL_DATA"):
        datasets.load(name)


@pytest.mark.parametrize("name", ["yale_b", "frey_faces", "glove", "boston_housing", "xing_protein", "satimage"])
def test_sets_without_a_source_say_where_to_get_them(no_network, name, tmp_path):
    real = REAL_SETS[name]
    with pytest.raises(FileNotFoundError) as caught:
        datasets.load(name, tmp_path)
    message = str(caught.value)
    for part in (f"{real.file}.npz", "VICINAL_DATA", "data_home", str(tmp_path), real.where):
        assert part in message


def test_available_lists_what_load_knows():
    assert set(datasets.available()) == set(REAL_SETS)
    assert all(line for line in datasets.available().values())


def test_everything_public_is_there():
    assert all(callable(getattr(datasets, name)) for name in datasets.__all__)


# --- real sets: the real files ----------------------------------------------------------------------------


@pytest.mark.data
@pytest.mark.parametrize("name", list(REAL_SETS))
def test_real_files(data_dir, name, no_network):
    real = REAL_SETS[name]
    if not (data_dir / f"{real.file}.npz").is_file():
        pytest.skip(f"{real.file}.npz is not in the data folder")
    bunch = datasets.load(name, data_dir)
    assert bunch.data.shape == real.shape
    assert bunch.data.dtype == real.dtype
    assert bunch.data.flags.c_contiguous
    assert np.isfinite(bunch.data).all()
    assert len(bunch.feature_names) == real.shape[1]
    if real.counts is not None:
        codes, counts = np.unique(bunch.target[: real.n_train], return_counts=True)
        assert dict(zip(codes.tolist(), counts.tolist(), strict=True)) == real.counts
    for extra in real.extras:
        assert len(bunch[extra]) == real.shape[0]


@pytest.mark.data
def test_real_copies_equal_those_of_scikit_learn(data_dir, no_network):
    for name in ("iris", "wine", "breast_cancer_wdbc", "balance_scale"):
        ours, theirs = datasets.load(name, data_dir), datasets.load(name)
        np.testing.assert_allclose(ours.data, theirs.data, rtol=1e-12)
        np.testing.assert_array_equal(ours.target, theirs.target)
    digits = sklearn_datasets.load_digits()
    test = datasets.load("optdigits", data_dir, subset="test")
    np.testing.assert_array_equal(test.data, digits.data)
    np.testing.assert_array_equal(test.target, digits.target)


@pytest.mark.data
def test_real_usps_scale(data_dir, no_network):
    usps = datasets.load("usps", data_dir)
    assert (usps.data.min(), usps.data.max()) == (-1, 1)
    np.testing.assert_array_equal(usps.target[:8], [6, 5, 4, 7, 3, 6, 3, 1])
    np.testing.assert_array_equal(usps.data, np.round(usps.data, 3))


# --- bad input --------------------------------------------------------------------------------------------

PLANE = np.arange(12.0).reshape(6, 2) ** 2
FACES = np.zeros((4, 8, 8))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: datasets.make_two_gaussians(1), ValueError, "n_samples must be at least 2, got 1"),
        (lambda: datasets.make_two_gaussians(10.0), TypeError, "n_samples must be an integer.*float"),
        (lambda: datasets.make_two_gaussians(True), TypeError, "n_samples must be an integer.*bool"),
        (lambda: datasets.make_two_gaussians(10, random_state="x"), ValueError, "seed"),
        (lambda: datasets.make_two_circles(10, noise_std=-1), ValueError, "noise_std must be.*-1"),
        (lambda: datasets.make_two_circles(10, noise_std=np.nan), ValueError, "noise_std must be a finite"),
        (lambda: datasets.make_five_gaussians(4), ValueError, "n_samples must be at least 5"),
        (lambda: datasets.make_five_gaussians(8, radius=0), ValueError, "radius must be"),
        (lambda: datasets.make_rings(3, n_classes=5), ValueError, "n_samples must be at least 5"),
        (lambda: datasets.make_rings(3, n_classes=0), ValueError, "n_classes must be at least 1"),
        (lambda: datasets.make_rings(9, noise_std="big"), TypeError, "noise_std must be a number.*str"),
        (lambda: datasets.make_rings(9, thickness=-0.1), ValueError, "thickness must be"),
        (lambda: datasets.add_noise_dimensions(PLANE, -1), ValueError, "n_dimensions must be at least 0"),
        (
            lambda: datasets.add_noise_dimensions(PLANE[:, [0, 0]], 1),
            ValueError,
            "got rank 1 with 2 columns.*PCA",
        ),
        (lambda: datasets.add_noise_dimensions(np.ones((5, 2)), 1), ValueError, "got rank 0 with 2 columns"),
        (lambda: datasets.add_noise_dimensions(PLANE[:2], 1), ValueError, "got rank 1 .*2 rows"),
        (lambda: datasets.add_noise_dimensions(PLANE[:1], 1), ValueError, "minimum of 2"),
        (lambda: datasets.add_noise_dimensions(PLANE * np.nan, 1), ValueError, "NaN"),
        (lambda: datasets.add_noise_dimensions(PLANE * 1e200, 1), ValueError, "Rescale"),
        (lambda: datasets.add_noise_dimensions(scipy.sparse.csr_array(PLANE), 1), TypeError, "parse"),
        (lambda: datasets.make_anisotropic_mixture(0), ValueError, "n_samples must be at least 1"),
        (lambda: datasets.make_anisotropic_mixture(9, 0), ValueError, "n_features must be at least 1"),
        (lambda: datasets.make_anisotropic_mixture(9, n_components=0), ValueError, "n_components must be"),
        (
            lambda: datasets.make_anisotropic_mixture(9, condition=0.5),
            ValueError,
            "condition must be between 1",
        ),
        (lambda: datasets.make_anisotropic_mixture(9, separation=-1), ValueError, "separation must be"),
        (lambda: datasets.make_text("hello"), ValueError, "letters T b e n o r t and spaces.*'hello'"),
        (lambda: datasets.make_text("  "), ValueError, "at least one letter"),
        (lambda: datasets.make_text(3), TypeError, "text must be a string, got int"),
        (lambda: datasets.make_text("to", 0), ValueError, "n_samples must be at least 1"),
        (lambda: datasets.make_spiral(0), ValueError, "n_samples must be at least 1"),
        (lambda: datasets.make_spiral(5, noise_std=-1), ValueError, "noise_std must be"),
        (lambda: datasets.spiral_log_density(np.ones((3, 3))), ValueError, "expected 2 columns, got 3"),
        (lambda: datasets.spiral_log_density(PLANE, noise_std=0), ValueError, "noise_std must be.*greater than 0"),
        (lambda: datasets.spiral_log_density([[np.nan, 0]]), ValueError, "NaN"),
        (lambda: datasets.spiral_log_density(PLANE * 1e200), ValueError, "Rescale"),
        (lambda: datasets.make_faces(0), ValueError, "n_samples must be"),
        (lambda: datasets.make_faces(3, size=2), ValueError, "size must be at least 8"),
        (
            lambda: datasets.make_face_pairs(PLANE),
            ValueError,
            r"shape \(n, height, width\), got \(6, 2\).*reshape",
        ),
        (lambda: datasets.make_face_pairs(FACES, 0), ValueError, "n_pairs must be"),
        (lambda: datasets.make_face_pairs(FACES, heights=(35, 25)), ValueError, "Swap"),
        (
            lambda: datasets.make_face_pairs(FACES, groups=[1, 1, 1, 1]),
            ValueError,
            "at least 2 groups are needed, got 1",
        ),
        (lambda: datasets.make_face_pairs(FACES, groups=[1, 2]), ValueError, "expected 4 entries, got 2"),
        (lambda: datasets.make_face_pairs(FACES, angle_noise=-1), ValueError, "angle_noise must be"),
        (
            lambda: datasets.blur_images(PLANE, (2, 2)),
            ValueError,
            r"image_shape=\(2, 2\) needs 4 columns, got 2",
        ),
        (lambda: datasets.blur_images(PLANE, (1, 2), sd=-1), ValueError, "sd must be"),
        (lambda: datasets.load("irises"), ValueError, "name must be one of usps.*got 'irises'"),
        (lambda: datasets.load(["iris"]), ValueError, "name must be one of"),
        (lambda: datasets.load("iris", subset="train"), ValueError, "has no split"),
        (lambda: datasets.load("usps", subset="half"), ValueError, "'all', 'train' or 'test', got 'half'"),
        (lambda: datasets.usps_blurred(subset="half"), ValueError, "pool, train, validation, test, all"),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()
