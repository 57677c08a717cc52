"""`feinsum.torch.einsum`: an operator of torch with derivatives, beside `torch.einsum`."""

from __future__ import annotations

import pytest
from fuzzing import EXAMPLES, cases
from hypothesis import given
from hypothesis import strategies as st

import feinsum as fe
from feinsum.errors import FeinsumError

torch = pytest.importorskip("torch")
torch_operator = pytest.importorskip("feinsum.interop.torch_operator")

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch 2.13, of itself

"""More random einsums than the few of every run."""


@pytest.fixture(scope="module", autouse=True)
def einsum():
    torch.manual_seed(21)
    return fe.torch.einsum


def tensors(*shapes, dtype=torch.float64, requires_grad=True):
    return [torch.randn(shape, dtype=dtype, requires_grad=requires_grad) for shape in shapes]


EINSUMS = {
    "a product": ("ij,jk->ik", (3, 4), (4, 2)),
    "a trace": ("ii->", (3, 3)),
    "a diagonal beside an index": ("iji,k->jk", (3, 2, 3), (2,)),
    "three times on a diagonal": ("iii->i", (3, 3, 3)),
    "an index that is only summed": ("ij,k->k", (3, 4), (2,)),
    "axes of length one": ("...ij,...jk->...ik", (2, 3, 4), (1, 4, 2)),
    "a letter of two lengths": ("ij,ij->i", (3, 4), (3, 1)),
    "without an arrow": ("ij,jk", (3, 4), (4, 2)),
    "three operands": ("ij,jk,kl->il", (2, 3), (3, 4), (4, 2)),
}


@pytest.mark.parametrize("case", EINSUMS)
def test_values_and_derivatives(einsum, case):
    """The values are those of torch, and derivatives those of differences."""
    subscripts, *shapes = EINSUMS[case]
    given = tensors(*shapes)
    torch.testing.assert_close(einsum(subscripts, *given), torch.einsum(subscripts, *given))
    assert torch.autograd.gradcheck(lambda *x: einsum(subscripts, *x), given)


@pytest.mark.parametrize("case", ["a diagonal beside an index", "a letter of two lengths"])
def test_second_derivatives(einsum, case):
    subscripts, *shapes = EINSUMS[case]
    assert torch.autograd.gradgradcheck(lambda *x: einsum(subscripts, *x), tensors(*shapes))


def test_complex_numbers(einsum):
    """Cotangents are multiplied by conjugates, as everywhere in torch."""
    given = tensors((3, 3, 2), (3, 2), dtype=torch.complex128)
    assert torch.autograd.gradcheck(lambda *x: einsum("iij,ik->k", *x), given)
    assert torch.autograd.gradgradcheck(lambda *x: einsum("iij,ik->k", *x), given)


def test_a_real_operand_of_a_complex_einsum_has_a_real_derivative(einsum):
    (a,), (b,) = tensors((3, 4)), tensors((4, 2), dtype=torch.complex128)
    assert torch.autograd.gradcheck(lambda *x: einsum("ij,jk->ik", *x), (a, b))
    einsum("ij,jk->ik", a, b).abs().sum().backward()
    assert a.grad.dtype == torch.float64


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_short_numbers_are_rounded_once(einsum, dtype):
    a, b = tensors((5, 40), (40, 6), dtype=dtype)
    found = einsum("ij,jk->ik", a, b)
    assert torch.equal(found, (a.float() @ b.float()).to(dtype))
    found.sum().backward()
    assert a.grad.dtype == dtype


def test_types_are_promoted_as_torch_does(einsum):
    [a], b = tensors((3, 4), dtype=torch.float32), torch.arange(8).reshape(4, 2)
    found = einsum("ij,jk->ik", a, b)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, a @ b.float())


def test_the_forms_of_torch_einsum(einsum):
    """A list of tensors, and tensors each followed by the numbers of its indices, with and without those of the result."""
    a, b = tensors((3, 4), (4, 2))
    for form in (("ij,jk->ki", [a, b]), (a, [0, 1], b, [1, 2], [2, 0]), (a, [0, 1], b, [1, 2])):
        torch.testing.assert_close(einsum(*form), torch.einsum(*form))


def test_tensors_without_memory(einsum):
    """On the device 'meta' there are shapes and types, and nothing is computed."""
    a, b = (one.to("meta") for one in tensors((3, 4), (4, 2), requires_grad=False))
    found = einsum("ij,jk->ik", a, b)
    assert (found.device.type, found.shape, found.dtype) == ("meta", (3, 2), torch.float64)


def test_derivatives_share_what_steps_have_computed(einsum, monkeypatch):
    """Four operands are three products, and their derivatives six; each derivative alone would be three again."""
    text, given = "nabc,ai,bj,ck->nijk", tensors((3, 2, 3, 4), (2, 3), (3, 2), (4, 2))
    einsum(text, *given)
    evaluate, seen = torch_operator._evaluate_tensors, []
    monkeypatch.setattr(torch_operator, "_evaluate_tensors", lambda text, own: seen.append(len(own)) or evaluate(text, own))
    found = torch.autograd.grad(einsum(text, *given).sin().sum(), given)
    assert seen == [2] * 9
    for one, other in zip(found, torch.autograd.grad(torch.einsum(text, *given).sin().sum(), given), strict=True):
        torch.testing.assert_close(one, other)
    seen.clear()
    einsum(text, given[0], *(one.detach() for one in given[1:])).sum().backward()
    assert seen == [4, 4]


def test_the_rules_of_operators(einsum):
    """What torch asks of an operator: its schema, fake tensors, derivatives under compilers."""
    torch.library.opcheck(torch.ops.feinsum.einsum.default, ("ij,jk->ik", tensors((3, 4), (4, 2))))


def test_no_graph_break(einsum):
    def layer(a, b):
        return einsum("...ij,jk->...ik", a.sin(), b).cos().sum()

    found, expected = tensors((2, 3, 4), (4, 2)), []
    expected = [one.detach().clone().requires_grad_() for one in found]
    torch.compile(layer, fullgraph=True, backend="aot_eager")(*found).backward()
    layer(*expected).backward()
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def test_compiled_derivatives_are_one_operator_that_shares_steps(einsum, monkeypatch):
    """Four operands are three products: two of them again, and six for derivatives, in one call of the compiled program."""
    text, given = "nabc,ai,bj,ck->nijk", tensors((3, 2, 3, 4), (2, 3), (3, 2), (4, 2))
    torch.autograd.grad(einsum(text, *given).sum(), given)  # knows the steps afterwards
    evaluate, seen, jointly = torch_operator._evaluate_tensors, [], []
    joint = torch_operator._derivatives
    layer = torch.compile(lambda *x: einsum(text, *x).sin(), fullgraph=True, backend="aot_eager")
    result = layer(*given)
    monkeypatch.setattr(torch_operator, "_evaluate_tensors", lambda text, own: seen.append(len(own)) or evaluate(text, own))
    monkeypatch.setattr(torch_operator, "_derivatives", lambda *x: jointly.append(x[0]) or joint(*x))
    found = torch.autograd.grad(result.sum(), given)
    assert seen == [2] * 8
    assert len(jointly) == 3
    for one, other in zip(found, torch.autograd.grad(torch.einsum(text, *given).sin().sum(), given), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("case", EINSUMS)
def test_derivatives_of_all_operands_at_once(einsum, case):
    """They are those of each alone, of real and complex tensors, and only of those that are wanted."""
    subscripts, *shapes = EINSUMS[case]
    for dtypes in ([torch.float64] * 3, [torch.complex128, torch.float64, torch.complex128]):
        given = [tensors(shape, dtype=dtype, requires_grad=False)[0] for shape, dtype in zip(shapes, dtypes, strict=False)]
        cotangent = torch.randn_like(einsum(subscripts, *given))
        for needed in ([True] * len(given), [False] * (len(given) - 1) + [True]):
            alone = torch_operator._derivatives(subscripts, given, cotangent, needed)
            at_once = torch.ops.feinsum.einsum_derivatives(subscripts, given, cotangent, needed)
            assert len(at_once) == sum(needed)
            for found, expected in zip(at_once, (one for one in alone if one is not None), strict=True):
                torch.testing.assert_close(found, expected.resolve_conj())
                assert found.is_contiguous()
        operator = torch.ops.feinsum.einsum_derivatives.default
        torch.library.opcheck(operator, (subscripts, given, cotangent, [True] * len(given)))


def quadratic(einsum):
    return lambda x, y: einsum("ij,jk,ik->", x, y, x.sin())


def batched_gradient(f):
    return torch.func.vmap(torch.func.grad(f), in_dims=(2, None))


@pytest.mark.parametrize("transform", ["grad", "hessian", "jacfwd", "batched_gradient"])
def test_transforms_of_functions(einsum, transform):
    make = batched_gradient if transform == "batched_gradient" else getattr(torch.func, transform)
    x, y = tensors((2, 3), (3, 3), requires_grad=False)
    x = torch.stack([x, 2 * x], 2) if transform == "batched_gradient" else x
    torch.testing.assert_close(make(quadratic(einsum))(x, y), make(quadratic(torch.einsum))(x, y))


def test_forward_mode_in_forward_mode_is_refused(einsum):
    """torch would give a wrong result."""
    x, y = tensors((2, 3), (3, 3), requires_grad=False)
    with pytest.raises(fe.ValidationError, match=r"jacfwd\(jacrev\(f\)\)"):
        torch.func.jacfwd(torch.func.jacfwd(quadratic(einsum)))(x, y)


@pytest.mark.parametrize(
    ("subscripts", "given", "message"),
    [("ij,jk->ik", [(3, 4), (5, 2)], "'j'"), ("ij->ik", [(3, 4)], "'k'"), ("ij", [(3,)], "1 axes"), ("", [], "got none")],
)
def test_errors_name_what_is_wrong(einsum, subscripts, given, message):
    with pytest.raises(FeinsumError, match=message):
        einsum(subscripts, *tensors(*given))


@st.composite
def einsums(draw):
    """Subscripts and shapes of one to three small operands, with repeated indices and axes of length one."""
    letters = "ijkl"[: draw(st.integers(1, 4))]
    lengths = {letter: draw(st.integers(1, 3)) for letter in letters}
    terms = draw(st.lists(st.text(letters, max_size=3), min_size=1, max_size=3))
    used = sorted(set("".join(terms)))
    output = "".join(draw(st.permutations([letter for letter in used if draw(st.booleans())])))
    shapes = [tuple(lengths[letter] for letter in term) for term in terms]
    return f"{','.join(terms)}->{output}", shapes, draw(st.sampled_from([torch.float64, torch.complex128]))


@cases(5)
@given(drawn=einsums())
def test_random_einsums(einsum, drawn):
    subscripts, shapes, dtype = drawn
    given = tensors(*shapes, dtype=dtype)
    torch.testing.assert_close(einsum(subscripts, *given), torch.einsum(subscripts, *given))
    assert torch.autograd.gradcheck(lambda *x: einsum(subscripts, *x), given)
    if EXAMPLES:
        assert torch.autograd.gradgradcheck(lambda *x: einsum(subscripts, *x), given)


SUMS = ("ij->i", "ij->", "ij->ji", "ii->i", "ii->", "i...->i", "ij,ij->ij", "ij,k->k", "ij,ij->i")
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool)


@pytest.mark.parametrize("subscripts", SUMS)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_have_the_types_of_torch(einsum, subscripts, dtype):
    """A sum over one tensor is wider than the tensor."""
    given = [torch.full((3, 3), 100).to(dtype)] * (subscripts.count(",") + 1)
    given[1:] = [given[0][0]] if subscripts == "ij,k->k" else given[1:]
    try:
        expected = torch.einsum(subscripts, *given)
    except NotImplementedError:
        pytest.skip("torch has no such product")
    found = einsum(subscripts, *given)
    assert found.dtype == expected.dtype
    assert torch.equal(found, expected)


@pytest.mark.parametrize("subscripts", ["ij->i", "ij,jk->ik", "ij,ij->ij", "ij,jk,k->ik"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64])
@pytest.mark.parametrize("cast", [torch.bfloat16, torch.float16])
def test_autocast_has_the_types_of_torch(einsum, subscripts, dtype, cast):
    """Which steps autocast rounds is up to torch; inside, it can be switched off."""
    given = [torch.ones((3,) * len(term), dtype=dtype) for term in subscripts.split("->")[0].split(",")]
    with torch.autocast("cpu", dtype=cast):
        assert einsum(subscripts, *given).dtype == torch.einsum(subscripts, *given).dtype
        with torch.autocast("cpu", enabled=False):
            assert einsum(subscripts, *given).dtype == dtype


@pytest.mark.parametrize("form", ["i...->i", "...->", "i...,j...->ij"])
def test_axes_of_an_ellipsis_that_the_output_omits_are_summed(einsum, form):
    given = tensors(*[(2, 3, 3)] * (form.count(",") + 1))
    torch.testing.assert_close(einsum(form, *given), torch.einsum(form, *given))
    interleaved = (given[0], [0, ...], [0])
    torch.testing.assert_close(einsum(*interleaved), torch.einsum(*interleaved))


@pytest.mark.filterwarnings("ignore:.*torch.jit.:DeprecationWarning")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.uint8])
def test_a_trace_has_the_operator(einsum, dtype):
    """Nothing of the example is left in the trace, not even its shape."""
    example, other = ((10 * torch.rand(shape)).to(dtype) for shape in ((2, 4), (3, 5)))
    traced = torch.jit.trace(lambda x: einsum("ij->i", x), (example,))
    expected = einsum("ij->i", other)
    assert traced(other).dtype == expected.dtype
    torch.testing.assert_close(traced(other), expected)


@pytest.mark.parametrize("dtypes", [(torch.complex64, torch.complex64), (torch.float64, torch.complex128)])
def test_complex_numbers_are_compiled(einsum, dtypes):
    """Lazy conjugates and derivatives included."""
    given = [tensors(shape, dtype=dtype)[0] for shape, dtype in zip([(3, 4), (4, 2)], dtypes, strict=True)]

    def layer(a, b):
        return einsum("ij,jk->ik", a, b.conj()).abs().sum()

    found = torch.compile(layer, fullgraph=True, backend="aot_eager")(*given)
    for one, other in zip(torch.autograd.grad(found, given), torch.autograd.grad(layer(*given), given), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("case", EINSUMS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_batched_gradients(einsum, case, dtype):
    """torch's older vmap makes them, of derivatives in both modes."""
    subscripts, *shapes = EINSUMS[case]
    assert torch.autograd.gradcheck(
        lambda *x: einsum(subscripts, *x),
        tensors(*shapes, dtype=dtype),
        check_batched_grad=True,
        check_forward_ad=True,
        check_batched_forward_grad=True,
    )


def test_jacobians_are_vectorized(einsum):
    x, y = tensors((2, 3), (3, 3))
    hessian, jacobian = torch.autograd.functional.hessian, torch.autograd.functional.jacobian
    expected = hessian(quadratic(torch.einsum), (x, y))
    torch.testing.assert_close(hessian(quadratic(einsum), (x, y), vectorize=True), expected)
    expected = jacobian(lambda a: a @ y, x)
    for strategy in ("reverse-mode", "forward-mode"):
        found = jacobian(lambda a: einsum("ij,jk->ik", a, y), x, vectorize=True, strategy=strategy)
        torch.testing.assert_close(found, expected)
