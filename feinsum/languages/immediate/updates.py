"""The rules of index maps: which indices the four updates may have, how long they are, and where marks may stand."""

from __future__ import annotations

from itertools import pairwise

from feinsum.languages.diagnostics import Findings, Note, counted
from feinsum.languages.immediate.maps import Mark, OperandIndices
from feinsum.languages.immediate.syntax import INPUTS, ImmediateUpdate
from feinsum.languages.immediate.types import ImmediateMemref
from feinsum.languages.source import Span


def check_update(update: ImmediateUpdate, findings: Findings) -> None:
    """Put into `findings` what is wrong with an update whose operands have the types that it says."""
    count = INPUTS[update.opcode]
    if len(update.map.inputs) != count:
        message = f"{update.opcode} reads {counted(count, 'operand')}, and its map has {len(update.map.inputs)}"
        findings.error("map-operands", update.map.span, message)
        return
    _check_update_numbers(update, findings)
    if not _check_terms(update, findings):
        return
    _SETS[update.opcode](update, findings)
    if update.opcode == "log":
        _check_marks(update, findings)


def _check_update_numbers(update: ImmediateUpdate, findings: Findings) -> None:
    known = [t for t in update.types if isinstance(t, ImmediateMemref)]
    elements = list(dict.fromkeys(t.element for t in known))
    if len(elements) > 1:
        message = f"tensors of {' and '.join(map(str, elements))} in one instruction; all have one type of number"
        findings.error("element-type", update.span, message)
        return
    for word, value, span in zip(("alpha", "beta"), (update.alpha, update.beta), update.constants, strict=True):
        if elements and not elements[0].holds(value):
            findings.error("constant-type", span, f"{word} is {value!r}, which is no value of {elements[0]}")


def _check_terms(update: ImmediateUpdate, findings: Findings) -> bool:
    """Whether the sets of indices can be compared."""
    fine = True
    lengths: dict[str, tuple[int, str]] = {}
    for term, name, type_ in zip(update.map.terms, (*update.operands, update.result), update.types, strict=True):
        letters = term.letters
        for letter in dict.fromkeys(letters):
            if letters.count(letter) > 1:
                fine = False
                findings.error("map-repeated", term.span, f"{name} has the index '{letter}' twice; there are no diagonals")
        marked = [mark for mark in term.marks if mark.kind]
        if marked and update.opcode != "log":
            message = f"{update.opcode} has no modifiers"
            findings.error("map-modifiers", marked[0].span, message, [Note(f"write {marked[0].letters}")])
        if not isinstance(type_, ImmediateMemref):
            continue
        if len(letters) != type_.order:
            fine = False
            message = f"{counted(len(letters), 'index')} for {name}, which is {type_}"
            findings.error("map-order", term.span, message)
            continue
        for letter, length in zip(letters, type_.shape, strict=True):
            other, owner = lengths.setdefault(letter, (length, str(name)))
            if other != length and fine:
                fine = False
                message = f"index '{letter}' is {length} in {name} but {other} in {owner}"
                findings.error("map-lengths", term.span, message)
    return fine


def _update_letters(update: ImmediateUpdate) -> list[str]:
    return [term.letters for term in update.map.terms]


def _check_axpby(update: ImmediateUpdate, findings: Findings) -> None:
    a, b = _update_letters(update)
    if set(a) != set(b):
        odd = min(set(a) ^ set(b))
        message = f"both operands of axpby have the same indices, and '{odd}' is in one only"
        findings.error("axpby-indices", update.map.span, message)


def _check_sum(update: ImmediateUpdate, findings: Findings) -> None:
    a, b = _update_letters(update)
    for letter in dict.fromkeys(b):
        if letter not in a:
            message = f"index '{letter}' of {update.result} is not in {update.operands[0]}"
            findings.error("sum-indices", update.map.output.span, message)


def _check_output(update: ImmediateUpdate, rule: str, findings: Findings) -> None:
    *inputs, output = _update_letters(update)
    for letter in dict.fromkeys(output):
        if letter not in "".join(inputs):
            message = f"index '{letter}' of {update.result} is in no operand that is read"
            findings.error(rule, update.map.output.span, message)


def _check_update_product(update: ImmediateUpdate, findings: Findings) -> None:
    a, b, c = _update_letters(update)
    _check_output(update, "product-indices", findings)
    for letter in dict.fromkeys(a + b):
        if letter not in c:
            message = f"index '{letter}' is not in {update.result}; a product sums over nothing"
            findings.error("product-indices", update.map.output.span, message)


def _check_log(update: ImmediateUpdate, findings: Findings) -> None:
    a, b, c = _update_letters(update)
    _check_output(update, "log-output", findings)
    for term, name, others in zip(update.map.inputs, update.operands, (b + c, a + c), strict=True):
        for letter in dict.fromkeys(term.letters):
            if letter not in others:
                message = f"index '{letter}' is in {name} only"
                findings.error("log-lonely", term.span, message)


_SETS = {"axpby": _check_axpby, "sum": _check_sum, "product": _check_update_product, "log": _check_log}


def _mark_of(term: OperandIndices, letter: str) -> Mark:
    return next(mark for mark in term.marks if letter in mark.letters)


def _check_marks(update: ImmediateUpdate, findings: Findings) -> None:
    terms = update.map.terms
    reported: set[Span] = set()
    for term in terms:
        for mark in term.marks:
            if mark.kind == "loop":
                for other in terms:
                    if mark.letters in other.letters and _mark_of(other, mark.letters).kind != "loop":
                        _complain_of_loop(mark, other, findings)
            elif mark.kind == "fuse" and mark.span not in reported:
                reported |= _check_group_marks(mark, update, findings)


def _complain_of_loop(mark: Mark, other: OperandIndices, findings: Findings) -> None:
    there = _mark_of(other, mark.letters)
    message = f"index '{mark.letters}' is looped over in one operand and not in another one"
    notes = [findings.note("looped over here", mark.span), Note(f"write [{mark.letters}]")]
    findings.error("loop-everywhere", there.span, message, notes)


def _check_group_marks(mark: Mark, update: ImmediateUpdate, findings: Findings) -> set[Span]:
    """Check the group of a mark in all operands; the spans of those marks that are of the same group."""
    alike = {other.span for term in update.map.terms for other in term.marks if other.letters == mark.letters}
    seen = {mark.span}
    classes = {update.map.letter_class(x) for x in mark.letters}
    if len(classes) > 1:
        message = f"{mark} has indices of different classes, {' and '.join(sorted(classes))}"
        findings.error("group-class", mark.span, message)
        return alike
    if classes == {"common"}:
        message = f"the indices of {mark} are in all operands; such ones are looped over or not marked"
        findings.error("group-class", mark.span, message)
        return alike
    for term, name, type_ in zip(update.map.terms, (*update.operands, update.result), update.types, strict=True):
        inside = [x for x in mark.letters if x in term.letters]
        if not inside:
            continue
        there = _mark_of(term, inside[0])
        if there.letters != mark.letters:
            message = f"({mark.letters}) is one index elsewhere, and not in {name}"
            note = findings.note(f"{mark} is one index here", mark.span)
            findings.error("group-everywhere", there.span if there.letters else term.span, message, [note])
            return seen
        seen.add(there.span)
        if isinstance(type_, ImmediateMemref) and not is_one_axis(mark.letters, term.letters, type_):
            message = f"{mark} of {name} does not lie in memory as one index, so the group means nothing"
            findings.warn("group-layout", there.span, message)
    return seen


def is_one_axis(group: str, letters: str, type_: ImmediateMemref) -> bool:
    """Whether neighbouring indices lie in memory as one: each stride is the previous one's times its length.

    >>> from feinsum.languages.immediate.types import SCALARS, make_immediate_memref
    >>> is_one_axis("jk", "ijk", make_immediate_memref(SCALARS["f32"], (3, 4, 5))), is_one_axis("ij", "ij", make_immediate_memref(SCALARS["f32"], (3, 4), (1, 8)))
    (True, False)
    """  # noqa: E501
    axes = [letters.index(x) for x in group]
    return all(type_.strides[b] == type_.strides[a] * type_.shape[a] for a, b in pairwise(axes))
