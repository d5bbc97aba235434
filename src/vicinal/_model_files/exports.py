"""The learned linear map for other tools: torch, faiss, ONNX."""

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

from vicinal._metric import LinearMetricMixin


def affine_map(estimator):
    """The matrix A and offset b (None for no offset) with ``transform(x) = A x + b``."""
    if isinstance(estimator, Pipeline):
        A, b = None, None
        for _, step in estimator.steps:
            if step is None or step == "passthrough":
                continue
            B, c = affine_map(step)
            b = c if b is None else B @ b + (0.0 if c is None else c)
            A = B if A is None else B @ A
        if A is not None:
            return A, b
    elif isinstance(estimator, LinearMetricMixin):
        check_is_fitted(estimator, "components_")
        return estimator.components_, None
    elif isinstance(estimator, StandardScaler):
        check_is_fitted(estimator)
        d = estimator.n_features_in_
        scale = estimator.scale_ if estimator.with_std else np.ones(d)
        # mean_ is set even where it is not used.
        return np.diag(1.0 / scale), (-estimator.mean_ / scale if estimator.with_mean else None)
    raise TypeError(
        f"expected a fitted metric (LCA, RCA, NCA, ...), or a Pipeline of StandardScaler and metrics, got "
        f"{type(estimator).__name__}: only linear maps can be exported."
    )


def to_torch(estimator, *, dtype=None, device=None):
    """Return the learned map as a ``torch.nn.Linear``.

    Parameters
    ----------
    estimator : fitted metric, or Pipeline of StandardScaler and metrics
    dtype : torch.dtype, optional
        The default is the dtype of ``components_``.
    device : torch device, optional

    Returns
    -------
    torch.nn.Linear
        Without bias for a metric; a pipeline with a centring scaler has one. The weights are a copy and can
        be trained further.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import RCA, io
    >>> X = np.random.default_rng(0).normal(size=(60, 3))
    >>> metric = RCA().fit(X, np.repeat(np.arange(20), 3))
    >>> io.to_torch(metric)  # doctest: +SKIP
    Linear(in_features=3, out_features=3, bias=False)
    """
    A, b = affine_map(estimator)
    torch = _optional("torch", "torch", "to_torch")
    weight = torch.tensor(np.ascontiguousarray(A), dtype=dtype, device=device)
    layer = torch.nn.Linear(A.shape[1], A.shape[0], bias=b is not None, dtype=weight.dtype, device=weight.device)
    with torch.no_grad():
        layer.weight.copy_(weight)
        if b is not None:
            layer.bias.copy_(torch.tensor(b, dtype=weight.dtype, device=weight.device))
    return layer


def to_faiss(estimator):
    """Return the learned map as a ``faiss.LinearTransform``, for use with ``faiss.IndexPreTransform``.

    Parameters
    ----------
    estimator : fitted metric, or Pipeline of StandardScaler and metrics

    Returns
    -------
    faiss.LinearTransform
        In float32, the only precision of faiss: centre data that lie far from the origin first (a pipeline
        with StandardScaler does).
    """
    A, b = affine_map(estimator)
    faiss = _optional("faiss", "faiss", "to_faiss")
    transform = faiss.LinearTransform(A.shape[1], A.shape[0], b is not None)
    faiss.copy_array_to_vector(np.ascontiguousarray(A, dtype=np.float32).ravel(), transform.A)
    if b is not None:
        faiss.copy_array_to_vector(np.ascontiguousarray(b, dtype=np.float32), transform.b)
    transform.is_trained = True
    transform.set_is_orthonormal()
    return transform


def to_onnx(estimator):
    """Return the learned map as an ONNX model with the input ``X`` and the output ``Z``.

    Parameters
    ----------
    estimator : fitted metric, or Pipeline of StandardScaler and metrics

    Returns
    -------
    onnx.ModelProto
        One ``Gemm`` node, any number of rows, in the dtype of ``components_``. Write it with ``onnx.save``.
    """
    A, b = affine_map(estimator)
    onnx = _optional("onnx", "onnx", "to_onnx")
    make, parts = onnx.helper, {"A": A} if b is None else {"A": A, "b": b}
    kind = make.np_dtype_to_tensor_dtype(A.dtype)
    constants = [
        onnx.numpy_helper.from_array(np.ascontiguousarray(part, A.dtype), name) for name, part in parts.items()
    ]
    X = make.make_tensor_value_info("X", kind, ["n", A.shape[1]])
    Z = make.make_tensor_value_info("Z", kind, ["n", A.shape[0]])
    node = make.make_node("Gemm", ["X", *parts], ["Z"], transB=1)
    graph = make.make_graph([node], f"vicinal_{type(estimator).__name__}", [X], [Z], constants)
    # An operator set and format of 2020: old enough for every runtime in use.
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 13)], producer_name="vicinal", ir_version=7)
    onnx.checker.check_model(model)
    return model


def _optional(module, extra, function):
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{function} needs {module}, which is not installed. Run: pip install 'vicinal[{extra}]'"
        ) from error
