"""Test that loading a model file takes memory and time in proportion to its size, also for forged files.

The story: a file of 4 MB whose network refers 400 times to one weight took 1.5 GB, 15 MB of ``[]`` in the header took
660 MB, and 60,000 references to one random state took two minutes.
"""

import json
import tracemalloc

import numpy as np
import pytest
import sklearn
from needs import needs
from sklearn.preprocessing import Normalizer, RobustScaler, StandardScaler

import vicinal
from vicinal import LCA, NCA, ParzenWindows, io
from vicinal._model_files import container
from vicinal._model_files.codec import Reader, Writer

MB = 2**20
X = np.random.default_rng(0).normal(size=(30, 3))


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write a file of any description and arrays with a valid checksum, as a forger would."""

    def write_file(tree, arrays=None):
        text = json.dumps({"vicinal": "0", "sklearn": sklearn.__version__, "estimator": tree}, separators=(",", ":"))
        with monkeypatch.context() as patch:
            patch.setattr(container, "LONGEST_HEADER", 2**60)
            container.write_arrays(tmp_path / "model.vicinal", text, arrays or {})
        return tmp_path / "model.vicinal"

    return write_file


def peak_of(path):
    """Return the outcome of loading, and the peak of the additional memory."""
    tracemalloc.start()
    try:
        said = str(io.load(path))
    except ValueError as error:
        said = str(error)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return said, peak


def assert_bounded(path, match):
    said, peak = peak_of(path)
    assert match in said
    assert peak <= 3 * path.stat().st_size + 32 * MB, f"{peak / MB:.0f} MB for {path.stat().st_size / MB:.1f} MB"


def array(name):
    return {"is": "array", "name": name}


def network(*layers):
    return {"is": "network", "layers": list(layers), "chain": True, "training": False, "trainable": True}


def tree_with(estimator, **parameters):
    tree = Writer().estimator(estimator)
    tree["parameters"].update(parameters)
    return tree


def test_a_network_does_not_refer_to_one_weight_many_times(write):
    needs("torch")
    weight = np.zeros((360, 360))  # 1 MB
    layer = {"layer": "Linear", "arrays": {"weight": array("w")}}
    path = write(tree_with(vicinal.NeuralNCA(), network=network(*[layer] * 200)), {"w": weight})
    assert_bounded(path, "refers to the array 'w', which it does not hold, or to which it has referred before")


def test_a_weight_is_copied_once_and_takes_no_random_numbers(tmp_path):
    torch = needs("torch")
    wide = torch.nn.Linear(500, 2000, dtype=torch.float64)  # 8 MB
    io.save(vicinal.NeuralNCA(network=wide), tmp_path / "model.vicinal")
    before = torch.random.get_rng_state()
    assert_bounded(tmp_path / "model.vicinal", "NeuralNCA")
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("part", ["[]", "[[[[]]]]", '{"a":0}', '{"a":{"a":{}}}', "1.5", '"ab"'])
def test_description_of_many_small_values_takes_bounded_memory(part, write):
    values = [json.loads(part)] * (900_000 // len(json.dumps(json.dumps([json.loads(part)]))))
    path = write(tree_with(LCA(), tol=values))
    assert 400_000 < path.stat().st_size < 2**20
    assert_bounded(path, "cannot load" if part[0] in "[{" else "LCA")


def test_a_description_of_too_many_objects_is_not_parsed(write):
    for part in ([], {}):
        with pytest.raises(ValueError, match="more than 100,000 lists and objects"):
            io.load(write(tree_with(LCA(), tol=[part] * 110_000)))


def test_many_short_strings_take_bounded_memory(write):
    """Each takes 64 bytes of memory and ten of the file."""
    tree = tree_with(LCA(), tol={"is": "strings", "name": "s"})
    for n, match in ((2**19, "LCA"), (2**20, "do not fit each other")):
        arrays = {"s": np.tile(np.frombuffer(b"ab", np.uint8), n), "s.lengths": np.full(n, 2)}
        assert_bounded(write(tree, arrays), match)


def test_description_that_is_too_long_is_neither_parsed_nor_saved(write, tmp_path):
    assert_bounded(write(tree_with(LCA(), tol="a" * (5 * MB))), "at most 1048576 are allowed")
    with pytest.raises(ValueError, match=r"too many parts to save: their description has 5.0 MB, at most 1 MB"):
        io.save(NCA(init=[[float(i) for i in range(600_000)]]), tmp_path / "other.vicinal")
    assert not (tmp_path / "other.vicinal").exists()


def test_random_states_have_keys_of_their_own(write):
    state = Writer().value(np.random.RandomState(0), ("key",))
    state["key"] = array("key")
    path = write(tree_with(NCA(), random_state=[state] * 2), {"key": np.zeros(624, dtype=np.uint32)})
    with pytest.raises(ValueError, match="to which it has referred before"):
        io.load(path)


def test_keys_of_a_dict_do_not_collide(write):
    """All of these have the hash 0: 40,000 of them, in a file of 1.2 MB, took 25 seconds."""
    items = [[key * (2**61 - 1), 1.0] for key in range(10_000)]
    with pytest.raises(ValueError, match="more than 1,000 keys that are not strings"):
        io.load(write(tree_with(vicinal.DensityClassifier(), priors={"is": "dict", "items": items})))
    few = dict.fromkeys((-1, -2, 0, 1, 2**61 - 1), 1.0)
    assert Reader({}).value(Writer().value(few, ("priors",))) == few


@pytest.mark.parametrize(
    "estimator",
    [
        Normalizer(),
        StandardScaler(with_mean=False, with_std=False),
        RobustScaler(with_centering=False, with_scaling=False),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_number_of_columns_without_arrays_is_bounded(write, estimator):
    """They were loaded, and `get_feature_names_out` and the display in notebooks took all memory."""
    writer = Writer()
    tree = writer.estimator(estimator.fit(X))
    tree["attributes"]["n_features_in_"] = 2**31
    with pytest.raises(ValueError, match=r"n_features_in_=2147483648, expected count\(d, least=1, most=1000000\)"):
        io.load(write(tree, writer.arrays))


@pytest.mark.parametrize("estimators", [1, 200])
def test_files_that_save_writes_stay_within_the_limits(estimators, tmp_path):
    """A classifier of many classes has the most estimators of all models."""
    rows = np.repeat(X, 10, axis=0) + np.random.default_rng(1).normal(size=(300, 3))
    y = np.arange(300) % max(2, min(estimators, 100))
    model = vicinal.DensityClassifier(ParzenWindows(1.0)).fit(rows, y)
    io.save(model, tmp_path / "model.vicinal")
    assert_bounded(tmp_path / "model.vicinal", "DensityClassifier")
