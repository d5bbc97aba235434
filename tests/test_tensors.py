"""Rows that the user holds on a GPU: the torch engine is chosen, and results stay there.

On a machine without a GPU, tensors in memory stand in for those on a device; with ``-m gpu`` they are on one.
"""

import gc

import numpy as np
import pytest
from needs import needs
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import vicinal
from vicinal import _tensors

torch = needs("torch")


@pytest.fixture(params=["memory", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request, monkeypatch):
    """Where tensors are; those in memory are made to count as on a device."""
    if request.param == "memory":
        monkeypatch.setattr(_tensors, "_elsewhere", lambda device: True)
        return "cpu"
    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA device")
    return "cuda"


def rows(dtype="float64", n=120):
    rng = np.random.default_rng(0)
    y = np.arange(n) % 3
    X = rng.normal(size=(n, 4)) * [1.0, 0.5, 2.0, 1.0] + y[:, None] + 100.0
    return np.round(X * 64).astype(dtype) / 64, y


pytestmark = pytest.mark.usefixtures("short_search_in_this_file")
FITS = {
    "LCA": lambda: vicinal.LCA(max_iter=5),
    "LCAGauss": lambda: vicinal.LCAGauss(max_iter=5),
    "LocalLCA": lambda: vicinal.LocalLCA(1, 5, 0.1, shared=1, center="mean"),
    "ParzenWindows": lambda: vicinal.ParzenWindows("loo"),
    "ManifoldParzen": lambda: vicinal.ManifoldParzen(2, n_neighbors=8, noise=0.1),
    "NCA": lambda: vicinal.NCA(2, max_iter=3, random_state=0),
    "PairNCA": lambda: vicinal.PairNCA(2, max_iter=3, random_state=0),
    "SoftNeighborsClassifier": lambda: vicinal.SoftNeighborsClassifier(),
    "SoftNeighborsRegressor": lambda: vicinal.SoftNeighborsRegressor(),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", FITS)
def test_a_fit_on_a_tensor_is_done_by_torch_and_leaves_numpy(device, name):
    X, y = rows()
    there, labels = torch.as_tensor(X, device=device), torch.as_tensor(y, device=device)
    fitted, expected = FITS[name]().fit(there, labels), FITS[name]().fit(X, y)
    assert fitted.engine_ == "torch"
    assert fitted.engine is None
    for attribute, value in vars(expected).items():
        found = getattr(fitted, attribute)
        assert not isinstance(found, torch.Tensor)
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            assert type(found) is np.ndarray
            np.testing.assert_allclose(found, value, rtol=1e-5, atol=1e-7)
    again = fitted.fit(X, y)  # on rows in memory the choice is free again
    assert again.engine_ == expected.engine_


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", ["LCA", "LocalLCA", "ParzenWindows", "ManifoldParzen"])
def test_scores_of_a_tensor_stay_on_its_device(device, name, dtype):
    X, y = rows(dtype)
    fitted = FITS[name]().fit(X, y)
    there = torch.as_tensor(X[:50] + 0.25, device=device)
    found, expected = fitted.score_samples(there), fitted.score_samples(X[:50] + 0.25)
    assert (type(found), found.dtype, found.device) == (torch.Tensor, torch.float64, there.device)
    np.testing.assert_allclose(found.cpu().numpy(), expected, rtol=1e-6 if dtype == "float64" else 1e-4)
    assert fitted.score(there) == pytest.approx(expected.mean(), rel=1e-4)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", ["LCA", "NCA"])
def test_images_of_a_tensor_stay_on_its_device(device, name, dtype):
    X, y = rows(dtype)
    fitted = FITS[name]().fit(X, y)
    there = torch.as_tensor(X, device=device)
    found = fitted.transform(there)
    assert (type(found), found.dtype, found.device) == (torch.Tensor, there.dtype, there.device)
    np.testing.assert_allclose(found.cpu().numpy(), fitted.transform(X), rtol=1e-4, atol=1e-4)


def test_scoring_a_tensor_copies_nothing_to_the_host(device, monkeypatch):
    X, _ = rows()
    fitted = vicinal.ParzenWindows(0.5).fit(X)
    there = torch.as_tensor(X, device=device)
    expected = fitted.score_samples(there)  # places the components
    copied = []
    for name in ("cpu", "numpy"):
        real = getattr(torch.Tensor, name)

        def watched(tensor, *options, real=real):
            copied.append(tensor.numel())
            return real(tensor, *options)

        monkeypatch.setattr(torch.Tensor, name, watched)
    found = fitted.score_samples(there)
    monkeypatch.undo()
    assert max(copied, default=0) <= 1
    assert bool((found == expected).all())


def test_an_engine_that_is_named_is_kept(device):
    X, _ = rows()
    there = torch.as_tensor(X, device=device)
    fitted = vicinal.ParzenWindows("loo", engine="reference").fit(there)
    assert fitted.engine_ == "reference"
    assert isinstance(fitted.score_samples(there), np.ndarray)


def test_the_tensor_itself_is_placed_and_freed_after_the_fit(device):
    X, _ = rows()
    there = torch.as_tensor(X, device=device)
    array = X.copy()
    _tensors.remember(vicinal.LCA(), array, there)
    assert _tensors.tensor_of(array) is not None
    np.testing.assert_array_equal(_tensors.tensor_of(_tensors.take_rows(array, np.array([3, 1]))).cpu(), X[[3, 1]])
    assert _tensors.tensor_of(X) is None
    key = id(array)
    del array
    gc.collect()
    assert key not in _tensors._tensors


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X: X[:, :3], "X has 3 features, but ParzenWindows is expecting 4 features"),
        (lambda X: X[0], r"X must be a table of at least one row, got a tensor of shape \(4,\)"),
        (lambda X: X[:0], "X must be a table of at least one row"),
        (lambda X: X * np.nan, "X contains NaN or infinity"),
        (lambda X: X * 1e200, "whose squares overflow float64"),
    ],
)
def test_bad_tensors_are_refused(device, change, message):
    X, _ = rows()
    fitted = vicinal.ParzenWindows(0.5).fit(X)
    with pytest.raises(ValueError, match=message):
        fitted.score_samples(change(torch.as_tensor(X, device=device)))


def test_whole_numbers_and_halves_are_taken(device):
    X, _ = rows()
    fitted = vicinal.ParzenWindows(5.0).fit(X)
    whole = torch.as_tensor(np.rint(X), device=device)
    expected = fitted.score_samples(np.rint(X))
    np.testing.assert_allclose(fitted.score_samples(whole.long()).cpu(), expected, rtol=1e-10)
    np.testing.assert_allclose(fitted.score_samples(whole.half()).cpu(), expected, rtol=1e-10)


def test_which_engine_says_torch_for_a_tensor_unless_another_is_named(device):
    there = torch.zeros(5, 2, device=device)
    for estimator in (None, vicinal.LCA(), vicinal.DensityOutlierDetector()):
        assert vicinal.which_engine(there, estimator).startswith("torch: the rows are a tensor on")
    assert vicinal.which_engine(there, vicinal.LCA(engine="reference")).startswith("reference")


OTHERS = {
    "BinnedTargetMetric": lambda: vicinal.companions.BinnedTargetMetric(vicinal.RCA()),
    "ConstrainedKMeans": lambda: vicinal.companions.ConstrainedKMeans(2, random_state=0),
    "ConstrainedGaussianMixture": lambda: vicinal.companions.ConstrainedGaussianMixture(2, random_state=0),
    "DensityClassifier": lambda: vicinal.DensityClassifier(vicinal.ParzenWindows("loo")),
    "DensityImputer": lambda: vicinal.DensityImputer(),
    "DensityOutlierDetector": lambda: vicinal.DensityOutlierDetector(),
    "DensityOutlierDetector of a pipeline": lambda: vicinal.DensityOutlierDetector(
        make_pipeline(StandardScaler(), vicinal.ParzenWindows("loo"))
    ),
    "Dequantizer": lambda: vicinal.Dequantizer(),
    "MMC": lambda: vicinal.companions.MMC(max_iter=3),
    "OnlineRCA": lambda: vicinal.OnlineRCA(),
    "ParzenMeanShift": lambda: vicinal.ParzenMeanShift(),
    "RCA": lambda: vicinal.RCA(),
}
ANSWERS = ("transform", "score_samples", "decision_function", "p_values", "predict_proba", "predict")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::vicinal.results.TrainingRowsWarning")
@pytest.mark.parametrize("name", OTHERS)
def test_estimators_without_an_engine_take_tensors_too(device, name, monkeypatch):
    X, y = rows()
    there, labels = torch.as_tensor(X, device=device), torch.as_tensor(y, device=device)
    if device == "cpu":  # NumPy cannot read a tensor on a GPU, as the outlier detector and RCA once tried to
        given, real = {there.data_ptr(), labels.data_ptr()}, torch.Tensor.__array__

        def refuse(tensor, *options, **more):
            if tensor.data_ptr() in given:
                raise TypeError("can't convert cuda:0 device type tensor to numpy.")
            return real(tensor, *options, **more)

        monkeypatch.setattr(torch.Tensor, "__array__", refuse)
    fitted, expected = OTHERS[name]().fit(there, labels), OTHERS[name]().fit(X, y)
    for answer in ANSWERS:
        if hasattr(expected, answer):
            found = getattr(fitted, answer)(there)
            assert isinstance(found, torch.Tensor) or answer not in ("transform", "score_samples")
            found = found.cpu().numpy() if isinstance(found, torch.Tensor) else found
            np.testing.assert_allclose(found, getattr(expected, answer)(X), rtol=1e-6, atol=1e-8)


def test_the_density_of_a_detector_is_fitted_where_the_rows_are_and_scores_stay_there(device):
    X, _ = rows()
    there = torch.as_tensor(X, device=device)
    detector = vicinal.DensityOutlierDetector().fit(there)
    assert detector.density_.engine_ == "torch"
    assert isinstance(detector.score_samples(there), torch.Tensor)
    assert isinstance(detector.p_values(there), np.ndarray)
    np.testing.assert_allclose(detector.explain(there[:3]).shares, detector.explain(X[:3]).shares)


def test_modes_are_sought_where_the_rows_are(device):
    X, _ = rows()
    there = torch.as_tensor(X, device=device)
    fitted, expected = vicinal.ParzenMeanShift().fit(there), vicinal.ParzenMeanShift().fit(X)
    assert fitted.engine_ == "torch"
    np.testing.assert_array_equal(fitted.labels_, expected.labels_)
    np.testing.assert_array_equal(fitted.predict(there), expected.predict(X))


def test_a_precision_that_numpy_does_not_have_is_taken_as_float32(device):
    X = torch.as_tensor(rows()[0], device=device).to(torch.bfloat16)
    fitted, expected = vicinal.ParzenWindows(5.0).fit(X), vicinal.ParzenWindows(5.0).fit(X.float())
    np.testing.assert_allclose(fitted.score_samples(X).cpu(), expected.score_samples(X.float()).cpu(), rtol=1e-6)
    in_memory = vicinal.RCA().fit(X.cpu(), rows()[1])
    np.testing.assert_array_equal(in_memory.components_, vicinal.RCA().fit(X.cpu().float(), rows()[1]).components_)


@pytest.mark.parametrize(("name", "message"), [("gpu", "device must name a torch device"), ("cuda:99", "CUDA device")])
def test_a_device_that_is_not_there_is_refused(name, message):
    with pytest.raises(ValueError, match=message):
        vicinal.ParzenWindows(1.0, engine=vicinal.Engine("torch", device=name)).fit(rows()[0]).score_samples(rows()[0])
