"""What the matcher sees in an instruction and what it refuses, with a kernel for each rule of the grammar."""

from __future__ import annotations

import loopy as lp
import numpy as np
import pytest
from kernels import make_kernel
from pymbolic import parse
from pymbolic.primitives import Comparison, Product, Variable

from feinsum.einsum import BatchedEinsum
from feinsum.errors import MatchError
from feinsum.match import match_einsum


def sketch(e: BatchedEinsum) -> str:
    """Subscripts and rows of an einsum: ``ij,ej->ei [D u]``."""
    return str(e).partition("]")[0] + "]"


SEEN = {
    "matrix times vectors": ("y[e, i] = sum(j, D_(i, j)*u_(e, j))", "ij,ej->ei [D u]"),
    "other order": ("y[e, i] = sum(j, u_(e, j)*D_(i, j))", "ej,ij->ei [u D]"),
    "parentheses": ("y[e, i] = sum((j, k), (D_(i, j)*(u_(e, j)*x_(k))))", "ij,ej,k->ei [D u x]"),
    "signs that cancel": ("y[e, i] = sum(j, (-D_(i, j))*(-(u_(e, j))))", "ij,ej->ei [D u]"),
    "unary plus": ("y[e, i] = sum(j, +(D_(i, j))*u_(e, j))", "ij,ej->ei [D u]"),
    "one times": ("y[e, i] = sum(j, 1*D_(i, j)*u_(e, j))", "ij,ej->ei [D u]"),
    "square": ("s = sum(j, x_(j)*x_(j))", "j,j-> [x x]"),
    "one array twice": ("y[e, i] = sum((j, k), D_(i, j)*D_(j, k)*u_(e, k))", "ij,jk,ek->ei [D D u]"),
    "one array transposed": ("q[i, j] = D_(i, j)*D_(j, i)", "ij,ji->ij [D D]"),
    "trace": ("s = sum(i, D_(i, i))", "ii-> [D]"),
    "diagonal": ("r[i] = D_(i, i)", "ii->i [D]"),
    "no sum": ("y[e, i] = u_(e, i)*w_(e)", "ei,e->ei [u w]"),
    "copy": ("y[e, i] = u_(e, i)", "ei->ei [u]"),
    "sum of one operand": ("t[e] = sum(j, u_(e, j))", "ej->e [u]"),
    "sum over everything": ("s = sum((e, j), u_(e, j))", "ej-> [u]"),
    "outer product": ("q[i, j] = x_(i)*x_(j)", "i,j->ij [x x]"),
    "scalars": ("s = c_()*c_()", ",-> [c c]"),
    "scalar without parentheses": ("t[e] = c_*w_(e)", ",e->e [c w]"),
    "tagged invocation": ("y[e, i] = sum(j, D_$left(i, j)*u_(e, j))", "ij,ej->ei [D u]"),
    "simultaneous sum": ("y[e, i] = simul_reduce(sum, j, D_(i, j)*u_(e, j))", "ij,ej->ei [D u]"),
    "transposed output": ("q[j, i] = sum(k, D_(i, k)*D_(j, k))", "ik,jk->ji [D D]"),
}


@pytest.mark.parametrize("name", SEEN)
def test_instruction_is_read_as_the_einsum_it_computes(name: str) -> None:
    """Each form that the grammar admits gives its subscripts and operands, in the order of the factors."""
    text, expected = SEEN[name]
    t_unit = make_kernel(text, rules=RULES_AND_SCALAR, arrays={"q": (4, 4), "r": (4,), "c": ()})
    assert sketch(match_einsum(t_unit).einsum) == expected


RULES_AND_SCALAR = """
c_() := c
D_(a, b) := D[a, b]
u_(a, b) := u[a, b]
x_(a) := x[a]
w_(a) := w[a]
"""

OPERANDS = {
    "a sum": ("f(a, b) := u[a, b] + 2*v[a, b]", "u*v"),
    "a product": ("f(a, b) := u[a, b]*v[a, b]", "u*v"),
    "a square": ("f(a, b) := u[a, b]*u[a, b]", "u"),
    "a constant that float32 does not hold": ("f(a, b) := 0.1*u[a, b]", "u"),
    "a function": ("f(a, b) := sin(u[a, b])", "u"),
    "a case": ("f(a, b) := u[a, b] if u[a, b] > 0 else v[a, b]", "u*v"),
    "a value argument": ("f(a, b) := alpha*u[a, b]", "u"),
    "names of inames": ("f(j, e) := u[j, e]", "u"),
    "names of arrays": ("f(D, x) := u[D, x]", "u"),
    "an offset": ("f(a, b) := u[a, b + 1]", "f"),
    "a permutation": ("f(a, b) := u[b, a]", "f"),
    "a repetition": ("f(a, b) := u[a, a] + 0*x[b]", "f"),
    "one argument left out": ("f(a, b) := w[a]", "f"),
    "two index tuples": ("f(a, b) := u[a, b]*w[a]", "f"),
    "an index as a value": ("f(a, b) := b*u[a, b]", "f"),
    "an index in a condition": ("f(a, b) := u[a, b] if b < 2 else 0", "f"),
    "another rule": ("f(a, b) := u_(a, b)", "u"),
    "several other rules": ("f(a, b) := u_(a, b) + 2*v[a, b]", "u*v"),
    "another rule elsewhere": ("f(a, b) := u_(b, a)", "f"),
    "an indirection": ("f(a, b) := u[m[a], b]", "f"),
    "a number": ("f(a, b) := 3.1", "f"),
    "a scalar": ("f(a, b) := c*u[a, b]", "f"),
}


@pytest.mark.parametrize("name", OPERANDS)
def test_operand_is_a_set_of_arrays_or_one_opaque_array(name: str) -> None:
    """Arrays read at exactly the formal arguments are a set; any other rule stands for one array of its own name."""
    rule, expected = OPERANDS[name]
    t_unit = make_kernel(
        "y[e, i] = sum(j, D_(i, j)*f(e, j))",
        rules=f"{rule}\nu_(a, b) := u[a, b]\nD_(a, b) := D[a, b]\n",
        arrays={"m": ("n",), "c": ()},
        dtypes={"m": "int32"},
        more=[lp.ValueArg("alpha", dtype="float64")],
    )
    match = match_einsum(t_unit)
    assert sketch(match.einsum) == f"ij,ej->ei [D {expected}]"
    assert [a.shape for a in match.einsum.args[0][1]] == [("n", 4)] * len(match.einsum.args[0][1])
    assert {str(a.dtype) for a in match.einsum.arrays} == {"float64"}


TYPES = {
    "the type of the array": ("f(a, b) := u[a, b]", "float32", "float32", "u: float32"),
    "a number without a type": ("f(a, b) := 0.1*u[a, b]", "float32", "float32", "u: float32"),
    "a number with a type": (Product((np.float64(0.125), parse("u[a, b]"))), "float32", "float64", "f: float64"),
    "a wider value argument": ("f(a, b) := alpha*u[a, b]", "float32", "float64", "f: float64"),
    "a function of integers": ("f(a, b) := sqrt(alpha)*u[a, b]", "int32", "float64", "f: float64"),
    "a quotient of integers": ("f(a, b) := u[a, b]/u[a, b]", "int32", "float64", "f: float64"),
    "a comparison": ("f(a, b) := (1 if u[a, b] > 0 else 0)*w[a]", "int32", "float64", "f: float64"),
    "numbers alone": ("f(a, b) := 1.5", "float32", "complex64", "f: complex64"),
    "a whole number alone": ("f(a, b) := 2", "float32", "float32", "f: float32"),
    "a complex number": (Product((2j, parse("u[a, b]"))), "float32", "complex64", "f: complex64"),
    "an index alone": ("f(a, b) := a + b", "float32", "float32", "f: float32"),
}


@pytest.mark.parametrize("name", TYPES)
def test_operand_has_the_type_that_its_rule_computes(name: str) -> None:
    """A set of arrays has their type; a rule that computes in another type is an array of that type."""
    rule, own, result, expected = TYPES[name]
    t_unit = make_kernel(
        "y[e, i] = f(e, i)",
        rules=rule + "\n" if isinstance(rule, str) else [lp.SubstitutionRule("f", ("a", "b"), rule)],
        dtypes={"u": own, "y": result, "w": "float64"},
        more=[lp.ValueArg("alpha", dtype="float64")],
    )
    (operand,) = match_einsum(t_unit).einsum.arrays
    assert f"{operand.name}: {operand.dtype}" == expected


REFUSED = {
    # rule 1
    "call": ("[i]: r[i] = f([j]: x[j])", r"'insn' is no einsum \(rule 1, single assignment\): it is a CallInstruction"),
    "atomic": ("r[i] = x_(i) {atomic}", r"rule 1, single assignment\): it is atomic"),
    # rule 2
    "maximum": ("r[i] = reduce(max, j, D_(i, j)*x_(j))", r"\(rule 2, one sum\): it reduces with 'max', not with sum"),
    "minimum": ("r[i] = reduce(min, j, D_(i, j)*x_(j))", "reduces with 'min'"),
    "product": ("r[i] = product(j, D_(i, j)*x_(j))", "reduces with 'product'"),
    "any": ("r[i] = reduce(any, j, D_(i, j)*x_(j))", "reduces with 'any'"),
    "argmax": ("r[i], m[i] = reduce(argmax, j, D_(i, j), j)", "it is a CallInstruction"),
    "scaled sum": (
        "r[i] = 2*sum(j, D_(i, j)*x_(j))",
        r"its sum is part of the expression 2\*reduce\(sum, \[j\], D_\(i, j\)",
    ),
    "negative sum": ("r[i] = -sum(j, D_(i, j)*x_(j))", "its sum is part of the expression"),
    "function of a sum": ("r[i] = sin(sum(j, D_(i, j)*x_(j)))", r"its sum is part of the expression sin\("),
    "accumulation": ("r[i] = r[i] + sum(j, D_(i, j)*x_(j))", r"its sum is part of the expression r\[i\] \+"),
    "two sums": ("r[i] = sum(j, D_(i, j)) + sum(k, D_(i, k))", "it has 2 reductions in one expression"),
    "product of sums": ("r[i] = sum(j, D_(i, j))*sum(k, D_(i, k))", "it has 2 reductions in one expression"),
    "nested sums": ("r[i] = sum(j, D_(i, j)*sum(k, D_(j, k)))", "it has 2 reductions nested in one another"),
    "sum of sums": ("r[i] = sum(j, sum(k, D_(i, j)*D_(j, k)))", "it has 2 reductions nested in one another"),
    "sum in a rule": ("r[i] = sum(j, D_(i, j)*inner(j))", "substitution rule 'inner' contains another reduction"),
    "sum in a rule of a rule": ("r[i] = outer(i)", "substitution rule 'outer' contains another reduction"),
    "sum over a loop": ("q[i, j] = sum(j, D_(i, j))", "it sums over 'j', which is also a loop around it"),
    "sum in a predicate": ("if sum(j, x[j]) > 0\nr[i] = x_(i)\nend", "its predicate contains a reduction"),
    "rule with sum in a predicate": ("if inner(0) > 0\nr[i] = x_(i)\nend", "its predicate contains a reduction"),
    # rule 3
    "sum of operands": (
        "r[i] = sum(j, D_(i, j) + x_(j))",
        r"\(rule 3, factors\): the factor D_\(i, j\) \+ x_\(j\) invokes two substitution rules, 'D_' and 'x_', and",
    ),
    "quotient": (
        "r[i] = sum(j, D_(i, j)/x_(j))",
        r"the factor D_\(i, j\) / x_\(j\) invokes two substitution rules, .* is one; feinsum.extr",
    ),
    "power": ("r[i] = sum(j, D_(i, j)*x_(j)**2)", r"the factor x_\(j\)\*\*2 is an expression of the substitution"),
    "conversion": ("r[i] = sum(j, D_(i, j)*cast(np.float64, x_(j)))", "is an expression of the substitution"),
    "number": ("r[i] = sum(j, 2*D_(i, j))", "the factor 2 invokes no substitution rule; feinsum.extract_operands makes"),
    "minus": (
        "r[i] = sum(j, -D_(i, j)*x_(j))",
        r"\(rule 7, operands\): its factors have a minus sign; feinsum.extract_oper",
    ),
    "constant": ("r[i] = 0", "the factor 0 invokes no substitution rule"),
    "one": ("r[i] = 1", "1 has no operand"),
    # rule 7
    "plain read": (
        "r[i] = sum(j, D[i, j]*x_(j))",
        r"\(rule 7, operands\): the factor D\[i, j\] invokes no substitution rule",
    ),
    "function": ("r[i] = sum(j, sin(x_(j))*D_(i, j))", r"the factor sin\(x_\(j\)\) is an expression of the substitution"),
    "scalar read": ("r[i] = c*x_(i)", "the factor c invokes no substitution rule"),
    # rule 5 and 6
    "stray loop": ("r[i] = x_(i) {inames=i:j}", r"\(rule 5, rank\): the loop 'j' is around it but does not index r\[i\]"),
    "private output": ("<> p[i] = x_(i)", r"\(rule 6, output\): 'p' is not in global memory"),
    "local output": ("local[i] = x_(i)", "'local' is not in global memory"),
    "strided output": ("long[2*i] = x_(i)", r"it writes to long\[2\*i\], where 2\*i is no iname"),
    "offset output": ("long[i + 1] = x_(i)", r"where i \+ 1 is no iname"),
    "fixed output": ("q[0, i] = x_(i)", r"it writes to q\[0, i\], where 0 is no iname"),
    "diagonal output": ("q[i, i] = x_(i)", r"it writes to q\[i, i\], which repeats an iname"),
    "output at a parameter": ("y[n - 1, i] = x_(i)", r"where n \+ -1 is no iname"),
    "output read by a rule": ("x[i] = sum(j, D_(i, j)*x_(j))", "it reads 'x', which it also writes"),
    "output read by a rule of a rule": ("x[i] = sum(j, D_(i, j)*around(j))", "it reads 'x', which it also writes"),
    "output in a predicate": ("if x[i] > 0\nx[i] = r_(i)\nend", "it reads 'x', which it also writes"),
    "unknown function": ("r[i] = unknown(i)*x_(i)", "the type of substitution rule 'unknown' is not known"),
    # rule 8
    "offset operand": (
        "r[i] = sum(j, D_(i, j + 1)*x_(j))",
        r"rule 'D_' is invoked as D_\(i, j \+ 1\), where j \+ 1 is no iname",
    ),
    "fixed operand": ("r[i] = sum(j, D_(0, j)*x_(i))", r"\(rule 8, plain indices\): .* where 0 is no iname of it"),
    "operand at a parameter": ("r[i] = long_(n)*x_(i)", r"where n is no iname of it"),
    "indirect operand": ("r[i] = sum(j, D_(i, m[j])*x_(j))", r"where m\[j\] is no iname of it"),
    "hidden iname": (
        "r[i] = sum(j, hidden(i)*x_(j))",
        "rule 'hidden' depends on iname 'j', which is none of its arguments",
    ),
    "hidden in a rule of a rule": ("r[i] = sum(j, behind(i)*x_(j))", "rule 'behind' depends on iname 'j'"),
    "hidden iname in a predicate": (
        "if guard() > 0\nr[i] = x_(i)\nend",
        "substitution rule in its predicate depends on 'i'",
    ),
    # rule 9
    "broadcast": ("q[i, k] = sum(j, D_(i, j))", r"\(rule 9, reading\): the output is indexed by 'k' but no operand is"),
    "count": ("r[i] = sum((j, k), D_(i, j))", "it sums over 'k' but no operand depends on it"),
    "narrowing": ("single[i] = x_(i)", "'single' is float32 but the operands give float64"),
    "widening": ("r[i] = single_(i)", "'r' is float64 but the operands give float32"),
    "half": ("halves[i] = half_(i)", "'half' is float16; arrays are float32, float64"),
    "two lengths": ("y[e, i] = long_(e)*long_(i)", r"array 'long' is read over \(4\) here but over \(n\) elsewhere"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_anything_beyond_the_grammar_is_refused_with_the_reason(name: str) -> None:
    """A refusal names the instruction, the rule of the grammar, what was found, and where there is one the way out."""
    text, reason = REFUSED[name]
    rules = """
    D_(a, b) := D[a, b]
    x_(a) := x[a]
    r_(a) := r[a]
    long_(a) := long[a]
    single_(a) := single[a]
    half_(a) := half[a]
    inner(a) := sum(k, D[a, k])
    outer(a) := inner(a)
    around(a) := x_(a)
    hidden(a) := D[a, j]
    behind(a) := hidden(a)
    guard() := x[i]
    unknown(a) := fancy(x[a])
    """
    t_unit = make_kernel(
        text,
        rules=rules,
        arrays={
            "q": (4, 4),
            "r": (4,),
            "m": (4,),
            "c": (),
            "long": ("8 + n",),
            "single": (4,),
            "half": (4,),
            "halves": (4,),
        },
        dtypes={"m": "int32", "single": "float32", "half": "float16", "halves": "float16"},
        more=[lp.TemporaryVariable("local", dtype="float64", shape=(4,), address_space=lp.AddressSpace.LOCAL)],
    )
    with pytest.raises(MatchError, match=reason):
        match_einsum(t_unit)


def test_predicate_may_not_depend_on_what_is_summed_over() -> None:
    """A condition inside the sum would make it another sum."""
    t_unit = make_kernel("r[i] = sum(j, D_(i, j))", arrays={"r": (4,)})
    (insn,) = t_unit.default_entrypoint.instructions
    guarded = insn.copy(predicates=frozenset([Comparison(Variable("j"), "<", 2)]))
    t_unit = t_unit.with_kernel(t_unit.default_entrypoint.copy(instructions=[guarded]))
    with pytest.raises(MatchError, match="its predicate depends on 'j', which is no loop around it"):
        match_einsum(t_unit)


def test_rule_is_invoked_with_as_many_arguments_as_it_has() -> None:
    """A malformed invocation is refused, not misread."""
    t_unit = make_kernel("t[e] = sum(j, u_(e, j))")
    kernel = t_unit.default_entrypoint
    shorter = kernel.substitutions["u_"].copy(arguments=("a",))
    t_unit = t_unit.with_kernel(kernel.copy(substitutions={"u_": shorter}))
    with pytest.raises(MatchError, match="substitution rule 'u_' takes 1 arguments but gets 2"):
        match_einsum(t_unit)


def test_more_indices_than_letters_are_refused() -> None:
    """An index is one letter, of which there are 52."""
    inames = [f"m{k}" for k in range(53)]
    text = f"s = sum(({', '.join(inames)}), {'*'.join(f'x_({iname})' for iname in inames)})"
    with pytest.raises(MatchError, match="it has 53 indices, more than the 52 letters"):
        match_einsum(make_kernel(text, f"{{[{', '.join(inames)}]: 0 <= {', '.join(inames)} < 2}}"))


def test_instruction_outside_a_loop_that_indexes_its_output_is_refused() -> None:
    """An output indexed by a loop around nothing is no kernel, and no einsum."""
    t_unit = make_kernel("y[e, i] = u_(e, i)")
    (insn,) = t_unit.default_entrypoint.instructions
    t_unit = t_unit.with_kernel(t_unit.default_entrypoint.copy(instructions=[insn.copy(within_inames=frozenset("e"))]))
    with pytest.raises(MatchError, match=r"y\[e, i\] is indexed by 'i', which is no loop around it"):
        match_einsum(t_unit)


@pytest.mark.filterwarnings("ignore:LinearSubscript is deprecated")
def test_linear_subscripts_are_no_index_tuples() -> None:
    """An array read at a linear index is opaque, and one written there is refused."""
    read = make_kernel("t[e] = sum(j, f(e, j))", rules="f(a, b) := u[[4*a + b]]\n")
    assert sketch(match_einsum(read).einsum) == "ej->e [f]"
    written = make_kernel("r[[i]] = x_(i)", arrays={"r": (4,)})
    with pytest.raises(MatchError, match="whose index is no tuple of inames"):
        match_einsum(written)
