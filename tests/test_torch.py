"""Test `vicinal.torch`: sums and gradients against all pairs in one matrix, finite differences, precisions, and bad input."""

import numpy as np
import pytest
from needs import needs

from vicinal import NCA
from vicinal._engine import Match, prepare
from vicinal._nca.objectives import neighbor_objective

torch = needs("torch")
F = torch.nn.functional

from vicinal.torch import info_nce_loss, log_sums, nca_loss, soft_means  # noqa: E402

REAL = torch.float64


def table(n, k=3, seed=0, dtype=REAL, **options):
    return (
        torch.randn(n, k, generator=torch.Generator().manual_seed(seed), dtype=REAL).to(dtype).requires_grad_(**options)
    )


def scores(q, x, log_weights=None, left_out=None):
    """All scores in one matrix."""
    s = -0.5 * (q[:, None] - x[None]).square().sum(dim=2)
    s = s if log_weights is None else s + log_weights
    if left_out is not None:
        here = torch.zeros_like(s, dtype=torch.bool)
        rows = torch.arange(len(q))[left_out >= 0]
        here[rows, left_out[left_out >= 0]] = True
        s = s.masked_fill(here, -torch.inf)
    return s


def same_gradients(ours, literal, inputs, rtol=1e-9):
    """Compare values and gradients under the same random incoming gradient, some of which is negative."""
    torch.testing.assert_close(ours, literal, rtol=rtol, atol=rtol)
    incoming = torch.randn(ours.shape, generator=torch.Generator().manual_seed(9), dtype=REAL).to(ours.dtype)
    mine, theirs = (torch.autograd.grad(out, inputs, incoming) for out in (ours, literal))
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("n", [40, 700])  # the plain backend, and the compiled one
def test_log_sums_agree_with_all_pairs_in_one_matrix(n):
    q, x, w = table(n // 2, seed=1), table(n, seed=2), torch.randn(n, dtype=REAL).requires_grad_()
    places = torch.arange(n // 2) * 2 - 1  # the first query leaves out none
    cases = (
        (log_sums(x), scores(x, x), [x]),
        (log_sums(x, exclude="position"), scores(x, x, left_out=torch.arange(n)), [x]),
        (log_sums(q, x), scores(q, x), [q, x]),
        (log_sums(q, x, w), scores(q, x, w), [q, x, w]),
        (log_sums(q, x, w, places), scores(q, x, w, places), [q, x, w]),
        (log_sums(x, None, w, "position"), scores(x, x, w, torch.arange(n)), [x, w]),
        (log_sums(x, exclude=torch.arange(n).flip(0)), scores(x, x, left_out=torch.arange(n).flip(0)), [x]),
    )
    for ours, literal, inputs in cases:
        same_gradients(ours, torch.logsumexp(literal, dim=1), inputs)


@pytest.mark.parametrize("n", [40, 700])
@pytest.mark.parametrize("v", [1, 45])
def test_soft_means_agree_with_all_pairs_in_one_matrix(n, v):
    q, x, w = table(n // 2, seed=1), table(n, seed=2), torch.randn(n, dtype=REAL).requires_grad_()
    values = table(n, v, seed=3)
    for ours, literal, inputs in (
        (soft_means(q, x, values, w), scores(q, x, w), [q, x, w, values]),
        (soft_means(x, None, values + 1e3, exclude="position"), scores(x, x, left_out=torch.arange(n)), [x, values]),
    ):
        shifted = values + 1e3 if len(ours) == n else values
        same_gradients(ours, torch.softmax(literal, dim=1) @ shifted, inputs, rtol=1e-8)
    one = soft_means(q, x, values[:, 0])
    torch.testing.assert_close(one, soft_means(q, x, values)[:, 0])


def test_gradients_pass_gradcheck():
    q, x, w, values = table(5, 2, 1), table(7, 2, 2), table(7, 1, 3)[:, 0].detach().requires_grad_(), table(7, 2, 4)
    places = torch.tensor([0, -1, 3, 3, 6])
    y, points_y = torch.tensor([0, 1, 0, 1, 1]), torch.tensor([0, 1, 1, 0, 0, 1, 1])
    check = torch.autograd.gradcheck
    assert check(lambda q, x, w: log_sums(q, x, w, places), (q, x, w))
    assert check(lambda x, w: log_sums(x, None, w, "position"), (x, w))
    assert check(lambda q, x, w, v: soft_means(q, x, v, w, places), (q, x, w, values))
    for objective in ("likelihood", "accuracy"):
        assert check(lambda z, o=objective: nca_loss(z, points_y, scale=0.7, objective=o), (x,))
        assert check(lambda z, p, o=objective: nca_loss(z, y, p, points_y, places, objective=o), (q, x))
    for normalize in (True, False):
        assert check(lambda a, b, n=normalize: info_nce_loss(a, b, 0.5, n, symmetric=True), (q, table(5, 2, 6)))


def test_nca_loss_is_the_objective_of_nca():
    rng = np.random.default_rng(0)
    X, y, A = rng.normal(size=(300, 5)), rng.integers(3, size=300), rng.normal(size=(2, 5))
    problem = prepare(None, X, leave_one_out=True, match=Match("class", y))
    network = torch.nn.Linear(5, 2, bias=False, dtype=REAL)
    network.weight.data = torch.from_numpy(A)
    for objective, shift in (("likelihood", 0.0), ("accuracy", 1.0)):
        expected = neighbor_objective(A, problem, objective=objective)
        network.zero_grad()
        loss = nca_loss(network(torch.from_numpy(X)), torch.from_numpy(y), objective=objective)
        loss.backward()
        assert float(loss.detach()) == pytest.approx(shift - expected.value, rel=1e-10)
        np.testing.assert_allclose(-network.weight.grad.numpy(), expected.gradient, rtol=1e-8, atol=1e-12)
    fitted = NCA(2, random_state=0, objective="likelihood").fit(X, y)
    final = nca_loss(torch.from_numpy(X @ fitted.components_.T), torch.from_numpy(y))
    assert float(final) == pytest.approx(-fitted.objectives_[-1], rel=1e-6)


def test_nca_loss_with_candidates_counts_all_points():
    z, y, positions = table(60, seed=1), torch.arange(60) % 4, torch.arange(60)
    every = nca_loss(z, y)
    some = positions[7:20]
    torch.testing.assert_close(nca_loss(z, y, z, y, positions), every)
    terms = [nca_loss(z[i : i + 1], y[i : i + 1], z, y, positions[i : i + 1]) for i in some.tolist()]
    torch.testing.assert_close(nca_loss(z[some], y[some], z, y, some), torch.stack(terms).mean())
    torch.testing.assert_close(nca_loss(z.detach(), y), every.detach())  # without a gradient in fewer sweeps
    far = torch.tensor([9, 9])  # a class that no point has: its share is 0
    assert float(nca_loss(z[:2], far, z, y, objective="accuracy").detach()) == 1.0


def test_info_nce_is_a_cross_entropy():
    a, b, own = table(50, seed=1), table(80, seed=2), torch.arange(50)
    literal = F.cross_entropy(F.normalize(a, dim=1) @ F.normalize(b, dim=1).T / 0.05, own)
    same_gradients(info_nce_loss(a, b), literal, [a, b])
    same_gradients(info_nce_loss(a, b, 2.0, normalize=False), F.cross_entropy(a @ b.T / 2.0, own), [a, b])
    products = a @ b[:50].T / 2.0
    both = 0.5 * (F.cross_entropy(products, own) + F.cross_entropy(products.T, own))
    same_gradients(info_nce_loss(a, b[:50], 2.0, normalize=False, symmetric=True), both, [a, b])


@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float32, 1e-4), (torch.bfloat16, 0.02)])
def test_single_and_half_precision(dtype, rtol):
    z, y = table(500, 8, dtype=dtype), torch.arange(500) % 5
    in_double = z.detach().to(REAL).requires_grad_()
    assert log_sums(z).dtype == torch.float32  # sums of bfloat16 are not rounded to 8 bits
    torch.testing.assert_close(log_sums(z).to(REAL), log_sums(in_double), rtol=1e-5, atol=1e-5)
    losses = [nca_loss(x, y) if x is in_double else nca_loss(x.float(), y) for x in (z, in_double)]
    for loss in losses:
        loss.backward()
    assert z.grad.dtype == dtype
    torch.testing.assert_close(
        z.grad.to(REAL), in_double.grad, rtol=rtol, atol=rtol * in_double.grad.abs().max().item()
    )


def test_two_runs_give_the_same_bits():
    def run():
        z, y = table(900, 6, dtype=torch.float32), torch.arange(900) % 7
        values = torch.nn.functional.one_hot(y).float()
        loss = (
            nca_loss(z, y)
            + soft_means(z, None, values, exclude="position").square().sum()
            + info_nce_loss(z, z.flip(0))
        )
        loss.backward()
        return loss.detach(), z.grad

    for one, other in zip(run(), run(), strict=True):
        assert torch.equal(one, other)


def test_rows_far_from_the_origin_and_without_points_give_numbers():
    z = (table(30, 2) + 1e6).detach().requires_grad_()
    same_gradients(log_sums(z), torch.logsumexp(scores(z, z), dim=1), [z])
    left_out = torch.zeros(3, dtype=torch.int64)
    q, x = table(3, 2, 1), table(1, 2, 2)
    sums, means = log_sums(q, x, exclude=left_out), soft_means(q, x, torch.ones(1, dtype=REAL), exclude=left_out)
    assert torch.isneginf(sums).all()
    assert (means == 0).all()
    for gradient in torch.autograd.grad(sums.exp().sum() + means.sum(), [q, x]):
        assert (gradient == 0).all()
    apart = torch.tensor([[0.0], [1e4], [2e4]], dtype=REAL, requires_grad=True)  # every exponential underflows
    same_gradients(
        log_sums(apart, exclude="position"),
        torch.logsumexp(scores(apart, apart, None, torch.arange(3)), dim=1),
        [apart],
        rtol=1e-7,
    )


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda z: log_sums(z.numpy()), TypeError, "queries must be a torch tensor of shape"),
        (lambda z: log_sums(z.long()), TypeError, "must be float64, float32 or bfloat16, got torch.int64"),
        (lambda z: log_sums(z, z.float()), ValueError, "points must have 3 columns of torch.float64 on cpu"),
        (lambda z: log_sums(z, exclude="self"), ValueError, "exclude must be None, 'position' or a tensor"),
        (lambda z: log_sums(z, z[:5], exclude="position"), ValueError, "needs a point for each of the 9 queries"),
        (lambda z: log_sums(z, exclude=torch.full((9,), 9)), ValueError, "positions from -1 .none. to 8, got 9 to 9"),
        (lambda z: log_sums(z, None, torch.zeros(4)), ValueError, "log_weights must be a tensor of shape"),
        (lambda z: log_sums(z * torch.nan), ValueError, "queries must be finite"),
        (lambda z: soft_means(z, None, torch.zeros(4)), ValueError, "values must be a floating-point tensor"),
        (lambda z: nca_loss(z, torch.arange(9)), ValueError, "got 9 rows without one"),
        (lambda z: nca_loss(z, torch.zeros(9)), ValueError, "y must be an integer tensor of shape"),
        (lambda z: nca_loss(z, torch.arange(9), z), ValueError, "must be passed together"),
        (lambda z: nca_loss(z, torch.arange(9), objective="pairs"), ValueError, "objective must be"),
        (lambda z: nca_loss(z, torch.arange(9), scale=0), ValueError, "scale must be a positive number"),
        (lambda z: info_nce_loss(z, z[:4]), ValueError, "b must have at least 9 rows"),
        (lambda z: info_nce_loss(z, z, temperature=-1.0), ValueError, "temperature must be a positive number"),
    ],
)
def test_bad_arguments_are_named(call, error, words):
    with pytest.raises(error, match=words):
        call(table(9).detach())
