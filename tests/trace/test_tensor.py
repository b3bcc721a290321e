"""The Tensor face: PyTorch's names, views, in-place rules and refusals."""

from __future__ import annotations

import numpy as np
import pytest

import tracegrad as tg
from tests.trace.running import Tensor, trace_only
from tracegrad import errors
from tracegrad.trace.modes import no_grad

A = np.arange(12.0).reshape(3, 4) / 7 - 0.6
V = np.array([1.0, -2.0, 3.0, 0.5])
INT = np.arange(12).reshape(3, 4)

# Programs of PyTorch's methods; run on torch itself where it is installed, else on the results
# that PyTorch 2 gave, restated with NumPy in `WANT` below.
PROGRAMS = [
    lambda x, v: x.sum(),
    lambda x, v: x.sum(0),
    lambda x, v: x.sum(dim=1, keepdim=True),
    lambda x, v: x.mean(1),
    lambda x, v: x.prod(0),
    lambda x, v: x.var(1),
    lambda x, v: x.std(),
    lambda x, v: x.var(0, unbiased=False),
    lambda x, v: x.amax(1),
    lambda x, v: x.max(),
    lambda x, v: x.max(1)[0],
    lambda x, v: x.min(0)[1],
    lambda x, v: x.max(dim=1, keepdim=True)[1],
    lambda x, v: x.argmax(1),
    lambda x, v: x.cumsum(0),
    lambda x, v: x.norm(),
    lambda x, v: x.norm(1),
    lambda x, v: x.logsumexp(1),
    lambda x, v: x.view(4, 3),
    lambda x, v: x.reshape(2, -1),
    lambda x, v: x.permute(1, 0),
    lambda x, v: x.transpose(0, 1),
    lambda x, v: x.t(),
    lambda x, v: x.unsqueeze(1),
    lambda x, v: x.unsqueeze(0).squeeze(0),
    lambda x, v: x.squeeze(1),
    lambda x, v: v.expand(3, -1),
    lambda x, v: x.narrow(1, 1, 2),
    lambda x, v: x.select(1, -1),
    lambda x, v: x.split(2, 1),
    lambda x, v: x.split([1, 2]),
    lambda x, v: x.chunk(2, 1),
    lambda x, v: x.unbind(1),
    lambda x, v: x.tensor_split(3, 1),
    lambda x, v: x.unfold(1, 2, 2),
    lambda x, v: x.diagonal(1),
    lambda x, v: x.as_strided((2, 2), (4, 2), 1),
    lambda x, v: x.movedim(0, 1),
    lambda x, v: x.flatten(),
    lambda x, v: x.unsqueeze(0).flatten(1),
    lambda x, v: x.clone(),
    lambda x, v: x.T.contiguous(),
    lambda x, v: x.flip(0, 1),
    lambda x, v: v.repeat(2, 3),
    lambda x, v: x.roll(1, 1),
    lambda x, v: x.clamp(-0.2, 0.3),
    lambda x, v: x.clamp(min=0),
    lambda x, v: x.add(v, alpha=2),
    lambda x, v: x.sub(1, alpha=3),
    lambda x, v: x @ v,
    lambda x, v: x.matmul(x.t()),
    lambda x, v: v.dot(v),
    lambda x, v: x.mv(v),
    lambda x, v: x[0],
    lambda x, v: x[0, 1],
    lambda x, v: x[..., 1:3],
    lambda x, v: x[None, 1],
    lambda x, v: x[[0, 2]],
    lambda x, v: x[:, [1, -1]],
    lambda x, v: x.where(x > 0, v),
    lambda x, v: x.masked_fill(x > 0, 9.0),
    lambda x, v: x / 2,
    lambda x, v: x**2,
    lambda x, v: x // 0.3,
    lambda x, v: x % 0.3,
    lambda x, v: 1 / v,
    lambda x, v: -x,
    lambda x, v: abs(x),
    lambda x, v: x.exp().sin().tanh(),
    lambda x, v: x.sigmoid(),
    lambda x, v: x.relu(),
    lambda x, v: x.double() > 0,
    lambda x, v: x.swapaxes(0, 1).reshape(12),
    lambda x, v: list(x),
    lambda x, v: x.view(3, 2, 2).flatten(0, 1),
    lambda x, v: [x.size(0), x.dim(), x.numel()],
]
WRITES = [
    lambda x, v: x.add_(v),
    lambda x, v: x.sub_(v, alpha=2),
    lambda x, v: x[0].mul_(2.0),
    lambda x, v: x[:, 1].div_(3.0),
    lambda x, v: x.copy_(v),
    lambda x, v: x[1].fill_(7.0),
    lambda x, v: x.zero_(),
    lambda x, v: x.exp_().sin_().neg_(),
    lambda x, v: x.clamp_(-0.1, 0.2),
    lambda x, v: x.clamp_(max=0.1),
    lambda x, v: x.pow_(2),
    lambda x, v: x.masked_fill_(x > 0, -1.0),
    lambda x, v: x.relu_(),
    lambda x, v: x.t()[1].mul_(4.0),
    lambda x, v: x.view(12)[3:5].zero_(),
    lambda x, v: x.unfold(1, 2, 2)[0].add_(1.0),
    lambda x, v: x.diagonal().fill_(5.0),
    lambda x, v: x.unsqueeze(0).transpose(0, 1).mul_(-1.0),
    lambda x, v: x[0, 0].add_(10.0),
    lambda x, v: x.__setitem__(0, v),
    lambda x, v: x.__setitem__((slice(None), 1), 3.0),
    lambda x, v: x.__setitem__(x > 0, 0.0),
    lambda x, v: x.__iadd__(1.0),
    lambda x, v: x[:, :2].__imul__(x[:, 2:]),
    lambda x, v: x.detach()[0].zero_(),
    lambda x, v: x.select(0, 1).copy_(v.clone()),
    lambda x, v: x.sigmoid_(),
    lambda x, v: x.abs_(),
]


@pytest.mark.oracle
@pytest.mark.parametrize("k", range(len(PROGRAMS)))
def test_results_are_pytorchs(k):
    torch = pytest.importorskip("torch")
    want = PROGRAMS[k](torch.tensor(A), torch.tensor(V))
    got = trace_only(PROGRAMS[k], A, V, face=Tensor).run((A.copy(), V.copy()))
    want = list(want) if isinstance(want, (tuple, list)) else [want]
    for g, w in zip(got, want, strict=True):
        w = w.numpy() if isinstance(w, torch.Tensor) else np.asarray(w)
        assert g.shape == w.shape and g.dtype == w.dtype
        np.testing.assert_allclose(g, w, rtol=1e-12)


@pytest.mark.oracle
@pytest.mark.parametrize("k", range(len(WRITES)))
def test_writes_are_pytorchs(k):
    torch = pytest.importorskip("torch")
    theirs, mine = torch.tensor(A), A.copy()
    WRITES[k](theirs, torch.tensor(V))
    trace_only(WRITES[k], A, V, face=Tensor).run((mine, V.copy()))
    np.testing.assert_allclose(mine, theirs.numpy(), rtol=1e-12)


def run(f, *args):
    return trace_only(f, *args, face=Tensor).run(tuple(a.copy() for a in args))


def test_where_the_faces_differ():
    got = run(lambda x: (x.transpose(0, 1), x.max(1)[0], x.std(), x.split(1)[2], x.repeat(1, 2)), A)
    np.testing.assert_array_equal(got[0], A.T)
    np.testing.assert_array_equal(got[1], A.max(1))
    np.testing.assert_allclose(got[2], A.std(ddof=1))
    np.testing.assert_array_equal(got[3], A[2:])
    np.testing.assert_array_equal(got[4], np.tile(A, (1, 2)))


def test_an_element_is_a_view():
    def f(v):
        t = v[0]
        v[0] = 8.0
        t.add_(1.0)
        return v, t

    got = run(f, V)
    assert got[0][0] == got[1] == 9.0


@pytest.mark.parametrize(
    ("f", "dtype"),
    [
        (lambda x: x + 1, "i4"),
        (lambda x: x * 1.5, "f8"),
        (lambda x: x / 2, "f8"),
        (lambda x: x > 1, "?"),
        (lambda x: x.sum(), "i8"),
        (lambda x: x.sin(), "f8"),
        (lambda x: x + x[0, 0].double(), "f8"),
        (lambda x: x.float() + x[0, 0].double(), "f4"),
        (lambda x: x.float() * 2.5, "f4"),
        (lambda x: x.long() + x[0], "i8"),
        (lambda x: x.float() + x.long(), "f4"),
        (lambda x: x.bool() + x.bool(), "?"),
    ],
)
def test_dtypes_follow_categories(f, dtype):
    got = run(f, INT.astype(np.int32))
    assert got[0].dtype == np.dtype(dtype)


REFUSED = [
    (lambda x: x.long().add_(1.5), "result_cast", "can't be cast"),
    (lambda x: x.long().mul_(x), "result_cast", "can't be cast"),
    (lambda x: x[0].add_(x), "broadcast_self", "doesn't match the broadcast shape"),
    (lambda x: x[0].copy_(x), "broadcast_self", "doesn't match"),
    (lambda x: x.permute(1, 0).view(12), "bad_geometry", "not compatible"),
    (lambda x: x.as_strided((5,), (4,), 0), "out_of_bounds", "out of bounds for storage"),
    (lambda x: x.as_strided((2,), (-1,), 3), "bad_geometry", "Negative strides"),
    (lambda x: x[::-1], "bad_geometry", "step must be greater than zero"),
    (lambda x: x[7], "out_of_bounds", "index 7 is out of bounds"),
    (lambda x: x.narrow(0, 2, 5), "out_of_bounds", "exceed axis"),
    (lambda x: x.sum(5), "out_of_bounds", "axis 5 is out of bounds"),
    (lambda x: x[0].expand(3, 4).mul_(2.0), "overlap", "single memory location"),
    (lambda x: x[:, 1:].detach_(), "detach_view", "cannot detach a view in place"),
    (lambda x: x.split(1)[0].mul_(2.0), "multi_output_view_inplace", "output 0 of split"),
    (lambda x: x.unbind()[1].mul_(2.0), "multi_output_view_inplace", "output 1 of unbind"),
    (lambda x: x.split([1, 1]), "out_of_bounds", "do not sum"),
    (lambda x: x.backward(), "gradient_shape", "for scalars only"),
    (lambda x: x.detach_(), "unsupported", "argument"),
    (lambda x: x.topk(1), "unsupported", "Tensor.topk is not supported yet"),
]


@pytest.mark.parametrize("k", range(len(REFUSED)))
def test_refusals_have_the_kinds_of_the_specification(k):
    f, kind, text = REFUSED[k]
    with pytest.raises(errors.TracegradError, match=text) as e:
        trace_only(f, A, face=Tensor)
    assert e.value.kind == kind and "test_tensor.py" in str(e.value)


def test_kinds_come_before_shapes():
    def f(x):
        x.split(1)[0].add_(x)

    with pytest.raises(errors.ViewMutationError) as e:
        trace_only(f, A, face=Tensor)
    assert e.value.kind == "multi_output_view_inplace"


def test_a_view_made_under_no_grad_may_not_be_written_outside():
    def f(x):
        y = x * 1.0
        with no_grad():
            v = y[0]
        v.mul_(2.0)

    with pytest.raises(errors.ViewMutationError) as e:
        trace_only(f, A, face=Tensor)
    assert e.value.kind == "no_grad_view_inplace" and e.value.direct


def test_fresh_results_are_nobodys_views():
    def f(x):
        with no_grad():
            s = x.sum(0, keepdim=True)
            i = x[:, [1, 0]]
        s.mul_(x[:1])
        i.mul_(x[:, :2])
        return s, i

    got = run(f, A)
    np.testing.assert_allclose(got[0], A.sum(0, keepdims=True) * A[:1])
    np.testing.assert_allclose(got[1], A[:, [1, 0]] * A[:, :2])


def test_zero_on_an_expanded_tensor_is_the_same_in_every_order():
    got = run(lambda x: (x[0].expand(2, 4).zero_(), x), A)
    assert not got[0].any() and not got[1][0].any()


def test_index_add_accumulates():
    i = np.array([0, 2, 0])
    got = run(lambda x, i: x.index_add_(0, i, x * 1.0, alpha=2), A, i)
    want = A.copy()
    np.add.at(want, i, 2 * A)
    np.testing.assert_allclose(got[0], want)
    j = np.array([3, 3])
    got = run(lambda x, j: x.index_add_(1, j, x[:, :2] * 1.0), A, j)
    want = A.copy()
    np.add.at(want, (slice(None), j), A[:, :2])
    np.testing.assert_allclose(got[0], want)


def test_in_place_methods_return_the_tensor_itself():
    traced = trace_only(lambda x: (x, x.mul_(2.0), x.copy_(x), x.fill_(1.0)), A, face=Tensor)
    assert all(t is traced.result[0] for t in traced.result)


def test_detach_in_place_cuts_the_history_of_later_uses():
    def f(x, w):
        y = x * 2.0
        v = y[:2]
        y.detach_()
        before = v.requires_grad, y.requires_grad
        y.mul_(w)
        return v * 1.0, before

    traced = trace_only(lambda x, w: f(x, w)[0], A, A + 1, face=Tensor)
    np.testing.assert_allclose(traced.run((A.copy(), A + 1))[0], (2 * A * (A + 1))[:2])


def test_both_spellings_of_axes():
    got = run(lambda x: (x.sum(axis=0, keepdims=True), x.mean(dim=0, keepdim=True)), A)
    assert got[0].shape == got[1].shape == (1, 4)


def test_rows_of_a_tensor_are_outputs_of_one_unbind():
    def scaled(x):
        y = x * 1.0
        for row in y:
            row.mul_(0.9)
        return y.sum()

    for many in (A, np.ones((20, 2))):
        with pytest.raises(errors.ViewMutationError, match="output 0 of unbind is a view"):
            tg.grad(scaled, arrays="torch", backend="numpy")(many)
        found = tg.grad(scaled, arrays="torch", views="exact", backend="numpy")(many)
        np.testing.assert_allclose(found, np.full(many.shape, 0.9))
