"""Exports of the learned map to other tools: NumPy, torch, faiss, ONNX, sentence-transformers.

A map is a chain of steps, each either linear, ``x -> A x + b``, or a normalisation, ``x -> x / |x|``.  Successive linear
steps are multiplied.
"""

from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray
from sklearn.decomposition import PCA
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import Normalizer, StandardScaler
from sklearn.utils.validation import check_is_fitted

from vicinal._metric import LinearMetricMixin
from vicinal._retrieval.query_map import QueryMap


class MapStep(NamedTuple):
    """One step of a learned map: ``x -> A x + b``, or ``x -> x / |x|``.

    Attributes
    ----------
    A : ndarray or None
        The matrix; None for a step that scales rows to unit length.
    b : ndarray or None
        The offset; None for no offset.
    """

    A: NDArray[Any] | None
    b: NDArray[Any] | None

    @property
    def is_unit_length(self) -> bool:
        """Whether the step scales rows to unit length."""
        return self.A is None


def map_steps(estimator: Any) -> list[MapStep]:
    """Return the steps of a fitted metric or pipeline."""
    steps = _steps(estimator)
    if not steps or all(step.is_unit_length for step in steps):
        raise TypeError(_refusal(estimator))
    return steps


def _steps(estimator: Any) -> list[MapStep]:
    if isinstance(estimator, Pipeline):
        joined: list[MapStep] = []
        for _, part in estimator.steps:
            if part is None or part == "passthrough":
                continue
            for step in _steps(part):
                if joined and not step.is_unit_length and not joined[-1].is_unit_length:
                    step = _product(step, joined.pop())
                joined.append(step)
        return joined
    if isinstance(estimator, LinearMetricMixin):
        check_is_fitted(estimator, "components_")
        if getattr(estimator, "_has_levels", False):
            raise TypeError(
                f"exports hold maps of numbers, and this {type(estimator).__name__} was fitted to columns of levels. Use its "
                "transform in Python, or export a vicinal.LCA that was fitted to the numbers alone."
            )
        return [MapStep(estimator.components_, None)]
    if isinstance(estimator, QueryMap):
        check_is_fitted(estimator, "matrix_")
        return [MapStep(None, None), MapStep(estimator.matrix_, estimator.offset_), MapStep(None, None)]
    if isinstance(estimator, Normalizer) and estimator.norm == "l2":
        return [MapStep(None, None)]
    if isinstance(estimator, StandardScaler):
        check_is_fitted(estimator)
        scale = estimator.scale_ if estimator.with_std else np.ones(estimator.n_features_in_)
        # mean_ is set even if it is not used.
        return [MapStep(np.diag(1.0 / scale), -estimator.mean_ / scale if estimator.with_mean else None)]
    if isinstance(estimator, PCA):
        check_is_fitted(estimator)
        A = estimator.components_
        if estimator.whiten:
            A = A / np.maximum(np.sqrt(estimator.explained_variance_), np.finfo(A.dtype).eps)[:, None]
        return [MapStep(A, -A @ estimator.mean_)]
    raise TypeError(_refusal(estimator))


def _product(after: MapStep, before: MapStep) -> MapStep:
    assert after.A is not None
    b = after.b if before.b is None else after.A @ before.b + (0.0 if after.b is None else after.b)
    return MapStep(after.A @ before.A, b)


def _refusal(estimator: Any) -> str:
    got = f"Normalizer(norm={estimator.norm!r})" if isinstance(estimator, Normalizer) else type(estimator).__name__
    return (
        f"expected a fitted metric (LCA, RCA, NCA, ...), or a Pipeline of StandardScaler, PCA, Normalizer() and metrics, got "
        f"{got}. Only linear maps and normalisations can be exported."
    )


def to_numpy(estimator: Any, *, dtype: DTypeLike = np.float32) -> list[MapStep]:
    """Return the learned map as plain arrays, for use in any language.

    Parameters
    ----------
    estimator : estimator
        A fitted metric, a pipeline of StandardScaler, PCA, Normalizer and metrics, or a QueryMap.
    dtype : dtype, default=float32
        The precision of the arrays.

    Returns
    -------
    list of MapStep
        The steps, to be applied in order: ``x @ A.T + b`` (without b if it is None), or, if A is None, ``x`` divided by
        its length.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import Normalizer
    >>> from vicinal import RCA, io
    >>> X = np.random.default_rng(0).normal(size=(60, 3))
    >>> model = make_pipeline(Normalizer(), RCA(), Normalizer()).fit(X, np.repeat(np.arange(20), 3))
    >>> Z = X
    >>> for A, b in io.to_numpy(model):
    ...     Z = Z / np.linalg.norm(Z, axis=1, keepdims=True) if A is None else Z @ A.T + (0 if b is None else b)
    >>> bool(np.allclose(Z, model.transform(X), atol=1e-5))
    True
    """
    if np.dtype(dtype).kind != "f":
        raise TypeError(f"dtype must be a floating-point dtype, such as 'float32', got {np.dtype(dtype)}.")
    return [
        MapStep(*(None if part is None else np.ascontiguousarray(part, dtype=dtype) for part in step))
        for step in map_steps(estimator)
    ]


def to_torch(estimator: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """Return the learned map as a torch module.

    Parameters
    ----------
    estimator : estimator
        A fitted metric, a pipeline of StandardScaler, PCA, Normalizer and metrics, or a QueryMap.
    dtype : torch.dtype, optional
        The default is float32.
    device : torch device, optional
        The device of the module; the CPU by default.

    Returns
    -------
    torch.nn.Module
        A ``torch.nn.Linear`` without bias for a metric, and with bias for a pipeline with a centring scaler. If the pipeline
        scales rows to unit length, a ``torch.nn.Sequential``. The weights are a copy and can be trained further.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import RCA, io
    >>> X = np.random.default_rng(0).normal(size=(60, 3))
    >>> metric = RCA().fit(X, np.repeat(np.arange(20), 3))
    >>> io.to_torch(metric)  # doctest: +SKIP
    Linear(in_features=3, out_features=3, bias=False)
    """
    steps = map_steps(estimator)
    torch = _optional("torch", "torch", "to_torch")
    from vicinal._model_files.unit_length import UnitLength

    dtype = torch.float32 if dtype is None else dtype
    if not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise TypeError(
            f"dtype must be a floating-point dtype of torch, such as torch.float64, or None, got {dtype!r}."
        )
    modules = [
        UnitLength() if step.is_unit_length else _linear(torch, step).to(dtype=dtype, device=device) for step in steps
    ]
    return modules[0] if len(modules) == 1 else torch.nn.Sequential(*modules)


def _linear(torch: Any, step: MapStep) -> Any:
    assert step.A is not None
    layer = torch.nn.Linear(step.A.shape[1], step.A.shape[0], bias=step.b is not None, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(np.ascontiguousarray(step.A)))
        if step.b is not None:
            layer.bias.copy_(torch.tensor(step.b))
    return layer


def to_faiss(estimator: Any, index: Any = None) -> Any:
    """Return a faiss index that transforms all rows that are added or searched, or the transform of queries alone.

    Parameters
    ----------
    estimator : estimator
        A fitted metric, a pipeline of StandardScaler, PCA, Normalizer and metrics, or a QueryMap.
    index : faiss.Index, optional
        The index for transformed rows, with as many dimensions as the map returns. The default is exact: by inner product
        (cosines) if the map ends with a normalisation, otherwise by distance.

    Returns
    -------
    faiss.IndexPreTransform or faiss.LinearTransform
        The index, in float32, the only precision of faiss. Centre data that lie far from the origin first, for example by
        a pipeline with StandardScaler. Write it with ``faiss.write_index``.

        For a :class:`vicinal.retrieval.QueryMap`, the transform of queries alone, because an index with a transform maps rows that
        are added as well. Search an index of unit rows by inner product with ``index.search(transform.apply(queries), k)``, where
        the queries have unit length (``faiss.normalize_L2``). Write it with ``faiss.write_VectorTransform``.
    """
    steps = map_steps(estimator)
    faiss = _optional("faiss", "faiss", "to_faiss")
    if isinstance(estimator, QueryMap):
        if index is not None:
            raise ValueError("index must be None for a QueryMap, which does not change the rows of an index.")
        return _faiss_transform(faiss, steps[1])
    widths = [step.A.shape for step in steps if step.A is not None]
    width, before = widths[-1][0], widths[0][1]
    if index is None:
        index = faiss.IndexFlatIP(width) if steps[-1].is_unit_length else faiss.IndexFlatL2(width)
    elif index.d != width:
        raise ValueError(f"index must have {width} dimensions, as the result of the map has, got {index.d}.")
    chain = []
    for step in steps:
        if step.A is None:
            chain.append(faiss.NormalizationTransform(before, 2.0))
            continue
        chain.append(_faiss_transform(faiss, step))
        before = step.A.shape[0]
    mapped = faiss.IndexPreTransform(index)
    for transform in reversed(chain):
        mapped.prepend_transform(transform)
    return mapped


def _faiss_transform(faiss: Any, step: MapStep) -> Any:
    assert step.A is not None
    transform = faiss.LinearTransform(step.A.shape[1], step.A.shape[0], step.b is not None)
    faiss.copy_array_to_vector(np.ascontiguousarray(step.A, dtype=np.float32).ravel(), transform.A)
    if step.b is not None:
        faiss.copy_array_to_vector(np.ascontiguousarray(step.b, dtype=np.float32), transform.b)
    transform.is_trained = True
    transform.set_is_orthonormal()
    return transform


def to_onnx(estimator: Any, *, dtype: DTypeLike = np.float32) -> Any:
    """Return the learned map as an ONNX model with the input ``X`` and the output ``Z``.

    Parameters
    ----------
    estimator : estimator
        A fitted metric, a pipeline of StandardScaler, PCA, Normalizer and metrics, or a QueryMap.
    dtype : dtype, default=float32
        The precision of the input, the output and the weights.

    Returns
    -------
    onnx.ModelProto
        One ``Gemm`` node per linear step, any number of rows. Write it with ``onnx.save``.
    """
    steps = to_numpy(estimator, dtype=dtype)
    onnx = _optional("onnx", "onnx", "to_onnx")
    make, nodes, constants = onnx.helper, [], []
    kind, rows = make.np_dtype_to_tensor_dtype(np.dtype(dtype)), "X"
    for place, step in enumerate(steps):
        given, rows = rows, "Z" if place == len(steps) - 1 else f"Z{place}"
        if step.is_unit_length:
            least = np.array([max(1e-30, np.finfo(dtype).tiny)], dtype=dtype)  # 1e-30 would be 0 in float16
            constants.append(onnx.numpy_helper.from_array(least, f"least{place}"))
            nodes += [
                make.make_node("ReduceL2", [given], [f"length{place}"], axes=[1], keepdims=1),
                make.make_node("Max", [f"length{place}", f"least{place}"], [f"divisor{place}"]),
                make.make_node("Div", [given, f"divisor{place}"], [rows]),
            ]
            continue
        parts = {f"{name}{place}": part for name, part in zip("Ab", step, strict=True) if part is not None}
        constants += [onnx.numpy_helper.from_array(part, name) for name, part in parts.items()]
        nodes.append(make.make_node("Gemm", [given, *parts], [rows], transB=1))
    shapes = [step.A.shape for step in steps if step.A is not None]
    X = make.make_tensor_value_info("X", kind, ["n", shapes[0][1]])
    Z = make.make_tensor_value_info("Z", kind, ["n", shapes[-1][0]])
    graph = make.make_graph(nodes, f"vicinal_{type(estimator).__name__}", [X], [Z], constants)
    # An operator set and format of 2020: old enough for every runtime in use.
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 13)], producer_name="vicinal", ir_version=7)
    onnx.checker.check_model(model)
    return model


def to_sentence_transformers(estimator: Any) -> list[Any]:
    """Return the learned map as sentence-transformers modules, to be appended to a model.

    Parameters
    ----------
    estimator : estimator
        A fitted metric, a pipeline of StandardScaler, PCA, Normalizer and metrics, or a QueryMap.

    Returns
    -------
    list of modules
        ``Dense`` without activation, in float32, and ``Normalize``. ``SentenceTransformer(modules=[*model, *these])`` embeds
        and maps texts; the saved model can be loaded without vicinal.

        For a :class:`vicinal.retrieval.QueryMap`, a ``Router`` whose route "query" maps texts and whose route "document" only scales
        them to unit length: use ``encode_query`` and ``encode_document``. It needs sentence-transformers 5 or newer.
    """
    steps = to_numpy(estimator)
    _optional("sentence_transformers", "sentence-transformers", "to_sentence_transformers")
    torch = import_module("torch")
    try:
        models = import_module("sentence_transformers.sentence_transformer.modules")
    except ImportError:  # before version 5.4
        models = import_module("sentence_transformers.models")
    modules = []
    for step in steps:
        if step.A is None:
            modules.append(models.Normalize())
            continue
        modules.append(
            models.Dense(
                step.A.shape[1],
                step.A.shape[0],
                bias=step.b is not None,
                activation_function=torch.nn.Identity(),
                init_weight=torch.tensor(step.A),
                init_bias=None if step.b is None else torch.tensor(step.b),
            )
        )
    if isinstance(estimator, QueryMap):
        routes = {"query_modules": modules, "document_modules": [models.Normalize()]}
        return [models.Router.for_query_document(**routes, default_route="document")]
    return modules


def _optional(module: str, extra: str, function: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{function} needs {module}, which is not installed. Run: pip install 'vicinal[{extra}]'"
        ) from error
