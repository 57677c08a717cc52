"""Several instructions as one batched einsum, among other instructions, in any kernel of a translation unit."""

from __future__ import annotations

import loopy as lp
import pytest
from kernels import DOMAIN, RULES, make_kernel

from feinsum.errors import MatchError, SubscriptError
from feinsum.match import find_einsums, match_einsum

OTHER_LOOPS = "[n] -> {[p, q, r]: 0 <= p < n and 0 <= q, r < 4}"
ROWS = """
y[e, i] = sum(j, D_(i, j)*u_(e, j)) {id=one}
z[p, q] = sum(r, v_(p, r)*D_(q, r)) {id=two}
"""


def test_rows_with_other_loops_and_another_order_are_one_batched_einsum() -> None:
    """Rows correspond by what they compute; the first one says in which order."""
    match = match_einsum(make_kernel(ROWS, [DOMAIN, OTHER_LOOPS]))
    assert match.einsum.subscripts == "ij,ej->ei"
    assert [[entry[0].name for entry in row] for row in match.einsum.args] == [["D", "u"], ["D", "v"]]
    assert match.insn_ids == ("one", "two")
    assert match.rules == (("D_", "u_"), ("D_", "v_"))
    assert match.loops == ({"e": "e", "i": "i", "j": "j"}, {"e": "p", "i": "q", "j": "r"})
    assert match.outputs == ("y", "z")
    assert match.names == {
        **{letter: letter for letter in "eij"},
        "n": "n",
        "D": "D",
        "u": "u",
        "v": "v",
        "out_0": "y",
        "out_1": "z",
    }


def test_operands_keep_their_order_where_they_may() -> None:
    """Where two operands could change places they do not: rows that are written alike are read alike."""
    match = match_einsum(
        make_kernel(
            "s = sum(j, x_(j)*h_(j))\nt_0 = sum(j, h_(j)*x_(j))",
            rules=f"{RULES}h_(a) := h[a]\n",
            arrays={"h": (4,), "t_0": ()},
        )
    )
    assert [[entry[0].name for entry in row] for row in match.einsum.args] == [["x", "h"], ["h", "x"]]


NO_ROWS = {
    "another einsum": (
        "t[e] = sum(j, v_(e, j)) {id=two}",
        "it computes t.e. = v_.e, j. for e < n, j < 4, another einsum than 'one', wh",
    ),
    "another axis summed": ("z[e, i] = sum(j, D_(j, i)*v_(e, j)) {id=two}", "another einsum than 'one'"),
    "one more operand": ("z[e, i] = sum(j, D_(i, j)*v_(e, j)*w_(e)) {id=two}", "another einsum than 'one'"),
    "transposed output": ("zt[i, e] = sum(j, D_(i, j)*v_(e, j)) {id=two}", "another einsum than 'one'"),
    "another length": ("g[e, l] = sum(j, D_(l, j)*v_(e, j)) {id=two}", "another einsum than 'one'"),
    "a length of the same value": ("gm[f, i] = sum(j, D_(i, j)*v_(f, j)) {id=two}", "another einsum than 'one'"),
    "a predicate": ("if e < 3\nz[e, i] = sum(j, D_(i, j)*v_(e, j)) {id=two}\nend", "another einsum than 'one'"),
    "the same output": (
        "y[e, i] = sum(j, D_(i, j)*v_(e, j)) {id=two}",
        "it writes 'y', which 'one' writes too; rows of a batched",
    ),
    "the output as operand": ("z[p, q] = sum(r, D_(q, r)*y_(p, r)) {id=two,dep=one}", "before or after another row"),
    "the output as operand without a dependency": (
        "z[p, q] = sum(r, D_(q, r)*y_(p, r)) {id=two,dep=*}",
        "it reads 'y', which 'one' wr",
    ),
    "an operand as output": ("u[p, q] = sum(r, D_(q, r)*v_(p, r)) {id=two,dep=*}", "it writes 'u', which 'one' reads"),
    "an order": (
        "z[e, i] = sum(j, D_(i, j)*v_(e, j)) {id=two,dep=one}",
        "before or after another row, directly or over a barrier",
    ),
    "a barrier": (
        "... gbarrier {id=bar,dep=one}\nz[p, q] = sum(r, D_(q, r)*v_(p, r)) {id=two,dep=bar}",
        "directly or over a barrier",
    ),
    "an instruction between": (
        "t[e] = y[e, 0] {id=mid,dep=one}\nz[p, q] = sum(r, D_(q, r)*v_(p, r)) {id=two,dep=mid}",
        "directly or over",
    ),
}


@pytest.mark.parametrize("name", NO_ROWS)
def test_instructions_that_do_not_belong_together_are_refused(name: str) -> None:
    """Where one einsum is asked for, rows must agree in subscripts, lengths and predicates, and be independent."""
    text, reason = NO_ROWS[name]
    t_unit = make_kernel(
        f"y[e, i] = sum(j, D_(i, j)*u_(e, j)) {{id=one}}\n{text}",
        [DOMAIN, OTHER_LOOPS, "{[l]: 0 <= l < 3}", "[m] -> {[f]: 0 <= f < m}"],
        rules=f"{RULES}y_(a, b) := y[a, b]\n",
        arrays={"zt": (4, "n"), "g": ("n", 3), "gm": ("m", 4), "v": ("n + m", 4)},
        more=[lp.ValueArg("m", dtype="int32")],
    )
    with pytest.raises(MatchError, match=rf"'two' is no einsum \(rule 10, rows\): .*{reason}"):
        match_einsum(t_unit, insn_match="id:one or id:two")
    # Searches pass over instructions with predicates.
    assert len(find_einsums(t_unit)) == (1 if name == "a predicate" else 2)


def test_temporaries_that_share_memory_are_no_two_outputs() -> None:
    """The outputs and operands of a batched einsum do not alias."""
    shared = [
        lp.TemporaryVariable(
            name, dtype="float64", shape=("n", 4), address_space=lp.AddressSpace.GLOBAL, base_storage="pool"
        )
        for name in ("p0", "p1")
    ]
    text = "p0[e, i] = sum(j, D_(i, j)*u_(e, j)) {id=one}\np1[e, i] = sum(j, D_(i, j)*v_(e, j)) {id=two}"
    with pytest.raises(MatchError, match="it writes 'p1', which 'one' writes too"):
        match_einsum(make_kernel(text, more=shared))
    text = "p1[e, i] = w[e] {id=init}\np0[e, i] = p1_(e, i) {id=row, dep=init}"
    with pytest.raises(MatchError, match=r"'row' is no einsum .* it reads 'p0', which it also writes"):
        match_einsum(make_kernel(text, rules="p1_(a, b) := p1[a, b]\n", more=shared), insn_match="id:row")


def test_predicates_are_carried_along() -> None:
    """Rows guarded by the same condition on their own loops are one batched einsum."""
    text = """
    if e < n - 1
        y[e, i] = sum(j, D_(i, j)*u_(e, j)) {id=one}
    end
    if p < n - 1
        z[p, q] = sum(r, D_(q, r)*v_(p, r)) {id=two}
    end
    """
    match = match_einsum(make_kernel(text, [DOMAIN, OTHER_LOOPS]))
    assert match.insn_ids == ("one", "two")


CHOICES = {
    "one": "id:one",
    "by a pattern": "id:o*",
    "by what is written": "writes:y",
    "by what is not": "not id:two and not id:copy",
    "by a tag": "tag:first",
}


@pytest.mark.filterwarnings("ignore:'pytools.resolve_name' is deprecated")
@pytest.mark.parametrize("name", CHOICES)
def test_instructions_are_chosen_among_others(name: str) -> None:
    """Everything that loopy's language of instructions can say chooses the rows."""
    t_unit = make_kernel(
        """
        y[e, i] = sum(j, D_(i, j)*u_(e, j)) {id=one, tags=first}
        z[p, q] = sum(r, v_(p, r)*D_(q, r)) {id=two}
        t[e] = 2*w[e] {id=copy}
        """,
        [DOMAIN, OTHER_LOOPS],
    )
    assert match_einsum(t_unit, insn_match=CHOICES[name]).insn_ids == ("one",)


def test_choosing_nothing_is_refused() -> None:
    """No instruction, an unreadable choice, and barriers alone are no einsum."""
    t_unit = make_kernel("y[e, i] = u_(e, i) {id=one}\n... gbarrier {id=bar,dep=one}")
    assert match_einsum(t_unit).insn_ids == ("one",)
    for choice in ("id:three", "id:bar"):
        with pytest.raises(MatchError, match="no instruction of kernel 'loopy_kernel' is chosen by id:"):
            match_einsum(t_unit, insn_match=choice)
    with pytest.raises(MatchError, match=r"insn_match <function .* cannot be read: .*write for example 'id:a or writes:y'"):
        match_einsum(t_unit, insn_match=lambda kernel, insn: True)
    with pytest.raises(MatchError, match="insn_match 'id=one' cannot be read"):
        match_einsum(t_unit, insn_match="id=one")


def test_instructions_of_other_kinds_are_refused() -> None:
    """C code is no assignment."""
    code = lp.CInstruction("e", "y[4*e] = 0;", assignees=("y[e, 0]",), id="code")
    t_unit = make_kernel("t[e] = w_(e) {id=one}")
    kernel = t_unit.default_entrypoint
    t_unit = t_unit.with_kernel(kernel.copy(instructions=[*kernel.instructions, code]))
    with pytest.raises(MatchError, match=r"'code' is no einsum \(rule 1, single assignment\): it is a CInstruction"):
        match_einsum(t_unit)
    assert [m.insn_ids for m in find_einsums(t_unit)] == [("one",)]


SEPARABLE = {
    "something else": "t[e] = 2*w[e]",
    "the output before": "y[e, i] = 0 {id=init}",
    "the output after": "z[e, i] = y[e, i] {dep=row}",
    "an operand before": "u[e, k] = v[e, k] {id=init}",
    "by a rule": "z[e, i] = y_(e, i) {dep=row}",
    "an operand overwritten in the loop of its sum": "[j]: x[j] = w[0] {id=init}",
}


@pytest.mark.parametrize("name", SEPARABLE)
def test_other_instructions_may_share_the_loops_of_a_row(name: str) -> None:
    """What both access in the same iteration can be computed in two nests as well as in one."""
    text = SEPARABLE[name].replace("[j]: x[j]", "x[j]")
    row = "y[e, i] = sum(j, D_(i, j)*u_(e, j)) {id=row%s}" % (", dep=init" if "init" in text else "")
    t_unit = make_kernel(f"{text}\n{row}", rules=f"{RULES}y_(a, b) := y[a, b]\n")
    assert match_einsum(t_unit, insn_match="id:row").einsum.subscripts == "ij,ej->ei"


def test_an_operand_of_several_index_tuples_shows_where_each_is_read() -> None:
    """What a rule reads at the iname of the shared loop is the element of the same iteration, whatever else it reads."""
    t_unit = make_kernel(
        "w[e] = 2*t[e] {id=init}\ny[e, i] = sum(j, D_(i, j)*f(e, j)) {id=row, dep=init}",
        rules=f"{RULES}f(a, b) := w[a]*u[a, b]\n",
    )
    assert match_einsum(t_unit, insn_match="id:row").einsum.subscripts == "ij,ej->ei"


INSEPARABLE = {
    "a scalar": (
        "<> p = 2*w[e] {id=init}",
        "p",
        "'init' writes 'p' in the same loop 'e', but not only the element of the same",
    ),
    "an array of one iteration": ("<> h[k] = u[e, k] {id=init}", "h[b]", "'init' writes 'h' in the same loop 'e'"),
    "another element": ("v[e, i] = w[e] {id=init}", "v[a + 1, b]", "'init' writes 'v' in the same loop 'e'"),
    "all of an operand": ("u[e, i] = v[e, i] {id=init}", "u[a, b]", "'init' writes 'u' in the same loop 'e'"),
    "an operand that later ones need": (
        "u[n - 1 - e, i] = 0 {id=init}",
        "u[a, b]",
        "'init' writes 'u' in the same loop 'e'",
    ),
    "the output of an earlier iteration": (
        "z[e, i] = y[e - 1, i] {id=init}",
        "u[a, b]",
        "'init' reads 'y' in the same loop 'e'",
    ),
    "the output somewhere": ("y[0, i] = w[e] {id=init}", "u[a, b]", "'init' writes 'y' in the same loop 'e'"),
    "an operand behind a rule": ("<> p = 2*w[e] {id=init}", "inner(a)", "'init' writes 'p' in the same loop 'e'"),
}


@pytest.mark.parametrize("name", INSEPARABLE)
def test_row_that_depends_on_its_place_in_a_loop_is_refused(name: str) -> None:
    """An operand that another instruction overwrites in every iteration is no array."""
    text, read, reason = INSEPARABLE[name]
    t_unit = make_kernel(
        f"{text}\ny[e, i] = sum(j, D_(i, j)*f(e, j)) {{id=row, dep=init}}",
        rules=f"{RULES}inner(a) := p\nf(a, b) := {read}\n",
    )
    with pytest.raises(MatchError, match=rf"'row' is no einsum \(rule 11, separable\): {reason}"):
        match_einsum(t_unit, insn_match="id:row")


def two_kernels() -> lp.TranslationUnit:
    """A kernel that calls another, in which the einsum is."""
    callee = lp.make_function(
        "{[i, j]: 0 <= i, j < 4}",
        """
        D_(a, b) := D[a, b]
        x_(a) := x[a]
        y[i] = sum(j, D_(i, j)*x_(j)) {id=row}
        """,
        [lp.GlobalArg("D", shape=(4, 4)), lp.GlobalArg("x", shape=(4,)), lp.GlobalArg("y", shape=(4,)), ...],
        name="apply",
        lang_version=(2018, 2),
    )
    caller = lp.make_kernel(
        "{[e, i, j, k]: 0 <= e < 5 and 0 <= i, j, k < 4}",
        "[i]: y[e, i] = apply([j, k]: D[j, k], [j]: u[e, j]) {id=call}",
        [lp.GlobalArg("D", "float64", (4, 4)), lp.GlobalArg("u", "float64", (5, 4)), lp.GlobalArg("y", "float64", (5, 4))],
        name="main_kernel",
        lang_version=(2018, 2),
    )
    return lp.merge([caller, callee])


def test_einsum_of_a_called_kernel_is_seen() -> None:
    """The kernel is chosen by name; types come from the call."""
    t_unit = two_kernels()
    match = match_einsum(t_unit, "apply")
    assert (match.einsum.subscripts, match.kernel_name) == ("ij,j->i", "apply")
    assert {str(a.dtype) for a in match.einsum.arrays} == {"float64"}
    with pytest.raises(MatchError, match=r"'call' is no einsum .* it is a CallInstruction"):
        match_einsum(t_unit)
    assert find_einsums(t_unit) == ()


def test_kernels_are_named_where_they_are_not_known() -> None:
    """Several entry points, a wrong name and something that is no translation unit are refused with what there is."""
    t_unit = two_kernels()
    with pytest.raises(MatchError, match=r"has no kernel 'other'; it has \['apply', 'main_kernel'\]"):
        match_einsum(t_unit, "other")
    with pytest.raises(MatchError, match=r"entry points \['apply', 'main_kernel'\]; choose one with kernel_name"):
        match_einsum(t_unit.copy(entrypoints=frozenset(["apply", "main_kernel"])))
    with pytest.raises(MatchError, match="a loopy TranslationUnit is needed, not LoopKernel"):
        match_einsum(t_unit["apply"])


def test_types_are_inferred_or_asked_for() -> None:
    """An array without a type gets that of what is written to it; one that nothing determines is named."""
    rules = "D_(a, b) := D[a, b]\nh_(a) := h[a]\n"
    temporary = [lp.TemporaryVariable("h", shape=(4,), address_space=lp.AddressSpace.GLOBAL)]
    t_unit = make_kernel(
        "h[k] = 2*x[k] {id=init}\nr[i] = sum(j, D_(i, j)*h_(j)) {id=row, dep=init}",
        rules=rules,
        more=temporary,
        arrays={"r": (4,)},
    )
    assert str(match_einsum(t_unit, insn_match="id:row").einsum.dtype) == "float64"
    unknown = make_kernel("r[i] = D_(i, i)", dtypes={"D": None}, arrays={"r": (4,)})
    with pytest.raises(MatchError, match="the type of 'D' in kernel 'loopy_kernel' is not known; give it one with loopy"):
        match_einsum(unknown)


def test_names_of_a_kernel_need_not_be_names_of_an_einsum() -> None:
    """Arrays that begin with an underscore, rules and inames named like anything: the match has names of its own."""
    t_unit = make_kernel(
        "_out[i_0, e] = sum(j, i(i_0, j)*j_(e, j)*_r(e))",
        "[E] -> {[e, i_0, j]: 0 <= e < E and 0 <= i_0, j < 4}",
        rules="i(a, b) := _in[a, b]\nj_(a, b) := D0[a, b]\n_r(a) := 2*a\n",
        arrays={"_out": (4, "E"), "_in": (4, 4), "D0": ("E", 4)},
        more=[lp.ValueArg("E", dtype="int32")],
    )
    match = match_einsum(t_unit)
    assert match.einsum.subscripts == "ij,ej,e->ie"
    assert match.names == {
        "e": "e",
        "i": "i_0",
        "j": "j",
        "E": "E",
        "array_in": "_in",
        "D0": "D0",
        "r": "_r",
        "out": "_out",
    }
    letters, others = (
        set(match.einsum.indexing.indices),
        {a.name for a in match.einsum.arrays} | set(match.einsum.long_axes),
    )
    assert not letters & others


def test_names_that_fall_together_are_told_apart() -> None:
    """A rule that stands for an array may have the name of one, or of a long axis but for underscores."""
    t_unit = make_kernel(
        "y[e, i] = _w(e)*w_(e)*_n(i)*_(i)", rules="_w(a) := 2*w[a + 1]\nw_(a) := w[a]\n_n(a) := a\n_(a) := a\n"
    )
    match = match_einsum(t_unit)
    assert {match.arrays[entry[0].name] for entry in match.einsum.args[0]} == {"_w", "w", "_n", "_"}
    assert match.axes == {"n": "n"}
    assert len({*match.arrays, *match.axes, *match.inames}) == 7


def test_relabelled_match_describes_the_same_kernel() -> None:
    """A match can be written in the letters and the order of a pattern; names in the kernel stay."""
    match = match_einsum(make_kernel(ROWS, [DOMAIN, OTHER_LOOPS]))
    other = match.relabel({"e": "b", "i": "c", "j": "a"}, (1, 0))
    assert other.einsum.subscripts == "ba,ca->bc"
    assert other.rules == (("u_", "D_"), ("v_", "D_"))
    assert other.inames == {"b": "e", "c": "i", "a": "j"}
    assert [[entry[0].name for entry in row] for row in other.einsum.args] == [["u", "D"], ["v", "D"]]
    assert other.relabel({"b": "e", "c": "i", "a": "j"}, (1, 0)) == match
    with pytest.raises(SubscriptError, match="does not rename the indices 'eij'"):
        match.relabel({"e": "b", "i": "b", "j": "a"}, (1, 0))
    with pytest.raises(SubscriptError, match="is no permutation of the 2 operands"):
        match.relabel({"e": "b", "i": "c", "j": "a"}, (0, 0))
