"""Arrays of other libraries in the memory of the host: shared where they are, given back as what came in."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import feinsum as fe

LONG = 1003


class Foreign:
    """An array of a library that speaks DLPack and the array API, and nothing else."""

    def __init__(self, value):
        self.value = value

    shape = property(lambda self: self.value.shape)
    dtype = property(lambda self: self.value.dtype)

    def __dlpack__(self, **keywords):
        return self.value.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.value.__dlpack_device__()

    def __array_namespace__(self, api_version=None):
        return type("xp", (), {"from_dlpack": staticmethod(lambda x: Foreign(np.from_dlpack(x)))})


class Library:
    """What the tests do with arrays of one library."""

    def __init__(self, name):
        self.name = name
        if name == "torch":
            torch = pytest.importorskip("torch")
            self.make, self.kind = torch.from_numpy, torch.Tensor
            self.address = lambda a: a.data_ptr()
        elif name == "jax":
            jax = pytest.importorskip("jax")
            self.kind = jax.Array
            self.make = jax.numpy.asarray
            self.address = lambda a: a.unsafe_buffer_pointer()
        else:
            self.make, self.kind = Foreign, Foreign
            self.address = lambda a: a.value.ctypes.data

    def numpy(self, value):
        return value.value if self.name == "foreign" else np.asarray(value)


@pytest.fixture(params=["torch", "jax", "foreign"], scope="module")
def library(request):
    return Library(request.param)


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


@pytest.fixture(scope="module")
def jax():
    return pytest.importorskip("jax")


@pytest.fixture(scope="module")
def kernel():
    D, u = fe.array("D", (20, 20), "float32"), fe.array("u", ("E", 20), "float32")
    return fe.generate(fe.einsum("ij,ej->ei", D, u), "cpu")


@pytest.fixture(scope="module")
def values():
    rng = np.random.default_rng(21)
    D, u = rng.random((20, 20), "float32"), rng.random((LONG, 20), "float32")
    return D, u, u @ D.T


def test_a_kernel_takes_and_gives(library, kernel, values):
    D, u, expected = values
    result = kernel(D=library.make(D), u=library.make(u))
    assert isinstance(result, library.kind)
    np.testing.assert_allclose(library.numpy(result), expected, rtol=1e-5)


def test_contractions_take_and_give(library, values):
    D, u, expected = values
    expression = fe.contract_expression("ij,ej->ei", D.shape, u.shape)
    for evaluate in (lambda *arrays: fe.contract("ij,ej->ei", *arrays), expression):
        result = evaluate(library.make(D), library.make(u))
        assert isinstance(result, library.kind)
        np.testing.assert_allclose(library.numpy(result), expected, rtol=1e-5)


def test_a_result_without_axes_is_an_array_of_the_library(library):
    """A number goes with the arrays of any library."""
    result = fe.contract("i,->", library.make(np.arange(4.0, dtype="float32")), 2.0)
    assert isinstance(result, library.kind)
    assert float(library.numpy(result)) == 12


@pytest.mark.parametrize("cpu_runtime", ["intel", "pocl"])
def test_memory_is_shared(library, values, cpu_runtime, monkeypatch):
    """The buffers that the kernel gets begin where the arrays do, and the result is where the kernel wrote it."""
    try:
        device = fe.device(cpu_runtime)
    except fe.DeviceError:
        pytest.skip(f"no runtime of {cpu_runtime}")
    import feinsum.compile.buffers as buffers

    wrapped, given = [], []
    wrap = buffers.wrap
    monkeypatch.setattr(buffers, "wrap", lambda value, *rest: wrapped.append(value.ctypes.data) or wrap(value, *rest))
    kernel = fe.generate(
        fe.einsum("ij,ej->ei", fe.array("D", (20, 20), "float32"), fe.array("u", ("E", 20), "float32")), device
    )
    D, u, _ = values
    arrays = [library.make(aligned(D)), library.make(aligned(u))]
    result = kernel(D=arrays[0], u=arrays[1])
    given = [library.address(one) for one in (*arrays, result)]
    assert wrapped == given
    assert "copied" not in kernel.explain()


def aligned(value):
    """A copy that begins where every library takes it."""
    raw = np.empty(value.nbytes + 128, np.uint8)
    start = -raw.ctypes.data % 128
    made = raw[start : start + value.nbytes].view(value.dtype).reshape(value.shape)
    made[...] = value
    return made


def test_like_chooses_the_library_of_the_result(torch, kernel, values):
    D, u, expected = values
    tensors = {"D": torch.from_numpy(D), "u": torch.from_numpy(u)}
    assert isinstance(kernel(**tensors, like="numpy"), np.ndarray)
    assert isinstance(kernel(D=D, u=u, like=tensors["u"]), torch.Tensor)
    assert isinstance(fe.contract("ij,ej->ei", D, u, like="torch"), torch.Tensor)
    on_device = fe.contract("ij,ej->ei", D, u, like="pyopencl")
    assert type(on_device).__module__ == "pyopencl.array"
    back = fe.contract("ei->ie", on_device, like="torch")
    np.testing.assert_allclose(back.numpy(), expected.T, rtol=1e-5)


def test_results_in_out(torch, kernel, values):
    """A tensor given for the result is written to where it is, and torch knows that it was."""
    D, u, expected = values
    tensors = {"D": torch.from_numpy(D), "u": torch.from_numpy(u)}
    out = torch.zeros(LONG, 20)
    version = out._version
    assert kernel(**tensors, out=out) is out
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-5)
    assert out._version > version
    again = torch.zeros(LONG, 20)
    assert fe.contract("ij,ej->ei", *tensors.values(), out=again) is again
    torch.testing.assert_close(again, out)


def test_strided_tensors(torch, kernel, values):
    """A transposed tensor is copied, and the explanation says so."""
    D, u, expected = values
    tensors = {"D": torch.from_numpy(D.T.copy()).T, "u": torch.from_numpy(u)}
    np.testing.assert_allclose(kernel(**tensors).numpy(), expected, rtol=1e-5)
    assert "copied    'D', which is strided" in kernel.explain()
    kernel(D=tensors["D"].contiguous(), u=tensors["u"])
    assert "copied" not in kernel.explain()


def test_conjugate_views(torch):
    """torch conjugates when it must; numpy sees the memory, which is not conjugated yet."""
    a, b = torch.randn(5, 6, dtype=torch.complex128), torch.randn(6, 7, dtype=torch.complex128)
    expression = fe.contract_expression("ij,jk->ik", (5, 6), (6, 7))
    torch.testing.assert_close(expression(a.conj(), b), a.conj() @ b)
    assert "operand 0, which is a view of its conjugate" in expression.explain()
    torch.testing.assert_close(fe.contract("ij->ij", a.conj().imag), a.conj().imag)


def test_history_is_not_lost_silently(torch, kernel, values):
    D, u, _ = map(torch.from_numpy, values)
    with pytest.raises(fe.ValidationError, match=r"'D' requires gradients.*feinsum\.torch\.einsum"):
        kernel(D=D.clone().requires_grad_(), u=u)
    with torch.no_grad():
        assert not kernel(D=D.clone().requires_grad_(), u=u).requires_grad


def test_a_constant_of_an_expression(torch, values):
    D, u, expected = values
    expression = fe.contract_expression("ij,ej->ei", torch.from_numpy(D), u.shape)
    np.testing.assert_allclose(expression(torch.from_numpy(u)).numpy(), expected, rtol=1e-5)


def test_jax_without_64_bits(jax):
    """Where JAX has no 64-bit numbers, the result of an einsum of its arrays has none either."""
    result = fe.contract("i->", jax.numpy.arange(5), dtype="int64")
    assert result.dtype == jax.dtypes.canonicalize_dtype("int64")
    assert int(result) == 10


REFUSED = {
    "two libraries": (
        lambda t, j: (t.ones(3, 3), np.ones((3, 3))),
        r"two libraries are mixed \(operand 0: torch, operand 1: numpy\)",
    ),
    "torch and jax": (lambda t, j: (t.ones(3, 3), j.numpy.ones((3, 3))), r"operand 0: torch, operand 1: jax"),
    "a list": (lambda t, j: (t.ones(3, 3), [[1.0] * 3] * 3), "operand 1: list"),
    "bfloat16": (lambda t, j: (t.ones(3, 3, dtype=t.bfloat16), t.ones(3, 3)), r"operand 0 is torch\.bfloat16.*float32"),
    "sparse": (lambda t, j: (t.eye(3).to_sparse(), t.ones(3, 3)), r"torch\.sparse_coo; pass a dense tensor"),
    "meta": (lambda t, j: (t.ones(3, 3, device="meta"),) * 2, r"feinsum\.torch\.einsum"),
    "meta beside memory": (lambda t, j: (t.ones(3, 3), t.ones(3, 3, device="meta")), r"1 is on .*feinsum\.torch\.einsum"),
    "jax bfloat16": (lambda t, j: (j.numpy.ones((3, 3), "bfloat16"),) * 2, "bfloat16; convert it"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_say_what_to_do(torch, jax, case):
    make, message = REFUSED[case]
    with pytest.raises(fe.FeinsumError, match=message):
        fe.contract("ij,jk->ik", *make(torch, jax))


def test_arrays_in_two_places_are_refused(torch, monkeypatch):
    monkeypatch.setattr("feinsum.interop.torch_arrays.Torch.place", lambda self, value: f"cuda:{value.shape[0] % 2}")
    with pytest.raises(fe.ValidationError, match=r"two places \(operand 0: cuda:1, operand 1: cuda:0\); bring all to one"):
        fe.contract("ij,jk->ik", torch.ones(3, 2), torch.ones(2, 3))


def test_traced_arrays_are_refused(jax):
    """Alone, and beside arrays that have elements."""
    known = jax.numpy.ones((3, 3))
    for other in (lambda x: x, lambda x: known):
        with pytest.raises(fe.ValidationError, match=r"0 is traced by JAX.*feinsum\.jax\.einsum"):
            jax.jit(lambda x, other=other: fe.contract("ij,jk->ik", x, other(x)))(np.ones((3, 3)))


def test_mapped_tensors_are_refused(torch):
    with pytest.raises(fe.ValidationError, match="not in memory"):
        torch.func.vmap(lambda x: fe.contract("j->", x))(torch.ones(3, 3))


@pytest.mark.parametrize("like", ["tensorflow", 3])
def test_what_is_no_library_is_refused(like):
    with pytest.raises(fe.ValidationError, match="like is"):
        fe.contract("i->i", np.ones(3), like=like)


def test_a_library_without_from_dlpack(kernel, values):
    class Mute:
        __module__ = "mute"
        __init__, shape, dtype = Foreign.__init__, Foreign.shape, Foreign.dtype
        __dlpack__, __dlpack_device__ = Foreign.__dlpack__, Foreign.__dlpack_device__

    D, u, _ = values
    with pytest.raises(fe.ValidationError, match="like='numpy'"):
        kernel(D=Mute(D), u=Mute(u))
    assert isinstance(kernel(D=Mute(D), u=Mute(u), like="numpy"), np.ndarray)


def test_the_package_imports_none_of_them():
    code = "import sys, feinsum, feinsum.generate; print([m for m in ('torch', 'jax', 'cupy', 'cuda') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


class BareDlpack:
    """An array that speaks DLPack and has neither shape nor type."""

    __module__ = "bare"  # libraries are told apart by module, and another class of this one has from_dlpack

    def __init__(self, value):
        self._value = value

    def __dlpack__(self, **how):
        return self._value.__dlpack__(**how)

    def __dlpack_device__(self):
        return self._value.__dlpack_device__()


@pytest.mark.parametrize("call", [fe.contract, lambda text, *x, **k: fe.contract_expression(text, (2, 3), (2, 3))(*x, **k)])
def test_bare_dlpack_is_taken_or_like_is_asked_for(call):
    value = np.arange(6.0).reshape(2, 3)
    given = BareDlpack(value), BareDlpack(value)
    np.testing.assert_allclose(call("ij,kj->ik", *given, like="numpy"), value @ value.T)
    with pytest.raises(fe.ValidationError, match="like="):
        call("ij,kj->ik", *given)
    with pytest.raises(fe.ArgumentError, match="operand 1 is a str"):
        call("ij,kj->ik", value, "text")


def test_expressions_take_the_backend_of_opt_einsum():
    value, expression = np.ones((2, 3)), fe.contract_expression("i...->i", (2, 3))
    for backend in ("numpy", "torch", "auto"):
        np.testing.assert_allclose(expression(value, backend=backend), [3, 3])
    with pytest.raises(fe.ValidationError, match="backend"):
        expression(value, backend="none")
