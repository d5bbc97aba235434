"""Test the data sets of the papers: real sets by name, and pairs of drawn faces."""

import itertools

import numpy as np
import pytest
from papers.face_pairs import make_face_pairs, make_faces
from papers.real_sets import SETS, blur_images, load, make_balance_scale, usps_blurred
from scipy.ndimage import rotate
from sklearn import datasets as sklearn_datasets


@pytest.fixture(autouse=True)
def no_folder(monkeypatch, request):
    if "data_dir" not in request.fixturenames:
        monkeypatch.delenv("VICINAL_DATA", raising=False)


def write_usps(folder, n_train=7291):
    rng = np.random.default_rng(0)
    X = rng.integers(-1000, 1001, size=(9298, 256)).astype(np.int16)
    y = rng.integers(0, 10, size=9298).astype(np.uint8)
    np.savez(folder / "usps.npz", X_train=X[:n_train], y_train=y[:n_train], X_test=X[n_train:], y_test=y[n_train:])
    return X, y


def test_load_files_in_natural_units(tmp_path, monkeypatch):
    X, y = write_usps(tmp_path)
    usps = load("usps", tmp_path)
    np.testing.assert_array_equal(usps.data, X / 1000)
    np.testing.assert_array_equal(usps.target, y)
    assert (usps.n_train, usps.image_shape, len(usps.feature_names), usps.target_names[7]) == (7291, (16, 16), 256, "7")
    train, test = load("usps", tmp_path, subset="train"), load("usps", tmp_path, subset="test")
    np.testing.assert_array_equal(np.vstack([train.data, test.data]), usps.data)
    data, target = load("usps", str(tmp_path), return_X_y=True, subset="test")
    np.testing.assert_array_equal(data, test.data)
    np.testing.assert_array_equal(target, test.target)
    monkeypatch.setenv("VICINAL_DATA", str(tmp_path))
    np.testing.assert_array_equal(load("usps", tmp_path / "none").data, usps.data)


def test_load_glove_words_and_steps(tmp_path):
    words = [f"w{i}" for i in range(99_999)] + ["naïve"]
    X = np.zeros((100_000, 100), dtype=np.int8)
    X[0, :2] = [-127, 5]
    text = np.frombuffer("\n".join(words).encode(), dtype=np.uint8)
    np.savez(tmp_path / "glove_100d_100k_int8.npz", X=X, words=text)
    glove = load("glove", tmp_path)
    assert glove.target is None
    assert glove.words == words
    assert glove.data.dtype == np.float32
    np.testing.assert_allclose(glove.data[0, :2], [-127 * 0.032, 5 * 0.032], rtol=1e-7)


def test_load_without_a_file_says_what_is_needed(tmp_path):
    for name in ("iris", "wine", "breast_cancer_wdbc", "balance_scale"):
        assert list(load(name).data.shape) == SETS[name]["shape"]
    for name in ("usps", "yale_b", "covertype"):
        with pytest.raises(FileNotFoundError) as caught:
            load(name, tmp_path)
        for part in (f"{SETS[name]['file']}.npz", "VICINAL_DATA", str(tmp_path), SETS[name]["where"]):
            assert part in str(caught.value)


def test_load_wrong_names_files_and_subsets_refused(tmp_path):
    np.savez(tmp_path / "usps.npz", X_train=np.zeros((5, 256)), X_test=np.zeros((5, 256)))
    with pytest.raises(ValueError, match=r"must hold \[9298, 256\] values in all, got \(10, 256\)"):
        load("usps", tmp_path)
    with pytest.raises(ValueError, match=r"name must be one of usps.*got 'irises'"):
        load("irises")
    with pytest.raises(ValueError, match="has no split"):
        load("iris", subset="train")


def test_usps_blurred_parts_and_weights(tmp_path):
    X, y = write_usps(tmp_path)
    pool = usps_blurred(tmp_path)
    assert pool.data.shape == (8298, 256)
    np.testing.assert_array_equal(pool.target, np.r_[y[:6291], y[7291:]])
    sizes = {"train": 6291, "validation": 1000, "test": 2007, "all": 9298}
    parts = {subset: usps_blurred(tmp_path, subset=subset) for subset in sizes}
    assert {subset: len(part.data) for subset, part in parts.items()} == sizes
    stacked = np.vstack([parts[part].data for part in ("train", "validation", "test")])
    np.testing.assert_array_equal(stacked, parts["all"].data)
    # One row by hand: separable weights exp(-u^2 / (2 sd^2)), cut at 3 pixels (4 sd), background -1 outside.
    offsets = np.arange(-3, 4)
    weight = np.exp(-(offsets**2) / (2 * 0.75**2))
    weight /= weight.sum()
    padded = np.pad(X[0].reshape(16, 16) / 1000, 3, constant_values=-1)
    expected = np.array([[weight @ padded[r : r + 7, c : c + 7] @ weight for c in range(16)] for r in range(16)])
    np.testing.assert_allclose(pool.data[0].reshape(16, 16), expected, atol=1e-12)
    np.testing.assert_allclose(blur_images(np.full((2, 12), -1.0), (3, 4)), -1, atol=1e-14)


def test_balance_scale_by_its_rule():
    _, y = make_balance_scale()
    expected = []
    for left_weight, left, right_weight, right in itertools.product(range(1, 6), repeat=4):
        torque = left_weight * left - right_weight * right
        expected.append("L" if torque > 0 else "R" if torque < 0 else "B")
    assert ["LBR"[label] for label in y] == expected


@pytest.mark.data
def test_load_real_files_have_the_stated_shapes(data_dir):
    for name, about in SETS.items():
        if (data_dir / f"{about['file']}.npz").is_file():
            bunch = load(name, data_dir)
            assert list(bunch.data.shape) == about["shape"]
            assert bunch.data.dtype == about.get("dtype", "float64")
            assert np.isfinite(bunch.data).all()
            assert all(len(bunch[extra]) == len(bunch.data) for extra in about.get("extras", ()))


@pytest.mark.data
def test_load_real_copies_equal_those_of_scikit_learn(data_dir, monkeypatch):
    for name in ("iris", "wine", "breast_cancer_wdbc", "balance_scale"):
        ours = load(name, data_dir)
        with monkeypatch.context() as patch:
            patch.delenv("VICINAL_DATA", raising=False)
            theirs = load(name)
        np.testing.assert_allclose(ours.data, theirs.data, rtol=1e-12)
        np.testing.assert_array_equal(ours.target, theirs.target)
    digits = sklearn_datasets.load_digits()
    test = load("optdigits", data_dir, subset="test")
    np.testing.assert_array_equal(test.data, digits.data)


def test_face_pairs_follow_the_paper():
    faces = make_faces(12, random_state=0)
    assert faces.min() >= 0
    assert faces.max() <= 1
    groups = ["ann", "bob", "cid"] * 4
    pairs = make_face_pairs(faces, 2000, groups=groups, size=9, random_state=0)
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
    faces = make_faces(4, size=31, random_state=0)
    still = make_face_pairs(
        faces, 5, size=31, max_angle=0, heights=(31, 31), angle_noise=0, height_noise=0, random_state=0
    )
    np.testing.assert_allclose(still.data.reshape(-1, 31, 31), faces[still.sources], atol=1e-12)
    np.testing.assert_array_equal(still.weights <= 1, True)


def test_face_pairs_turn_as_scipy_does():
    faces = make_faces(4, size=31, random_state=0)
    turned = make_face_pairs(faces, 3, size=31, heights=(31, 31), height_noise=0, random_state=0)
    for picture, source, angle in zip(turned.data, turned.sources, turned.angles, strict=True):
        expected = rotate(faces[source], angle, reshape=False, order=1)
        np.testing.assert_allclose(picture.reshape(31, 31), expected, atol=1e-9)
