"""Lowering: a batched einsum becomes a loopy translation unit with one instruction per output.

``ij,ej->ei`` becomes, on the domain ``0 <= e < E, 0 <= i < 35, 0 <= j < 35``::

    D_0(i0, i1) := D[i0, i1]
    u_1(i0, i1) := u[i0, i1]
    out[e, i] = sum(j, D_0(i, j) * u_1(e, j))

An epilogue stands around the sum, ``out[e, i] = alpha*sum(j, ...) + b[i]``, with the sum wherever it has ``v``, its arrays
read at the loops of the output and its scalars as value arguments.  One of several rows stands around their sums,
``out[e, i] = sum(j, ...)*sum(j, ...)``.

Operands are substitution rules, so that a transformation can move an operand without knowing what it is, and
:mod:`feinsum.match` reads an einsum back out of any kernel of this form.
"""

from __future__ import annotations

from typing import Any

import loopy as lp
import numpy as np
from loopy.symbolic import TypeCast
from pymbolic.primitives import Product, Variable

from feinsum.arrays import CONSTANT_PREFIXES
from feinsum.contraction import ContractionSchedule, fused_schedule
from feinsum.einsum import Array, BatchedEinsum, require_einsum
from feinsum.errors import SubscriptError
from feinsum.lower.epilogue_expressions import OutputEpilogue, scalar_arguments, with_functions
from feinsum.lower.schedule_steps import Length, Steps, fresh_name, read_element
from feinsum.lower.substitution_rules import keep_apart

KERNEL_NAME = "feinsum"
LANGUAGE_VERSION = (2018, 2)


def generate_loopy(
    e: BatchedEinsum,
    schedule: ContractionSchedule | None = None,
    index_dtype: Any = "int32",
    *,
    target: lp.TargetBase | None = None,
    unfinished: bool = False,
    inline: bool = False,
) -> lp.TranslationUnit:
    """The loopy kernel that computes a batched einsum, with no transformation applied.

    Arguments are the arrays of `e` under their names, C-contiguous; the outputs ``out`` or ``out_0``, ``out_1``, ...; and a
    value argument for each number that an epilogue takes and for each long axis.  Index letters are inames; an underscore
    is appended to a letter that names something else, and with several steps the number of the step.

    :param schedule: how to contract many operands; None does so in one loop nest.  Results of steps but the last are
        temporaries in global memory, and a global barrier stands between steps.
    :param index_dtype: ``int32``, or ``int64`` for arrays of 2³¹ elements and more.
    :param target: what loopy generates code for; None is :class:`loopy.PyOpenCLTarget`.
    :param unfinished: whether sums are left as they are, those with an epilogue in the arguments :func:`sum_names`.
    :param inline: whether the sum stands in the instruction that stores what is made of it also where something is chosen
        by it, as by ``where(v < 0, 0, v)``: for a transformation, as loopy 2025.2 makes wrong code of that.  Otherwise it
        has an instruction of its own.
    :raises SubscriptError: if `e` is no batched einsum, or `schedule` does not evaluate it.
    """
    require_einsum(e)
    schedule = fused_schedule(e) if schedule is None else schedule
    if not isinstance(schedule, ContractionSchedule):
        raise SubscriptError(f"schedule is {schedule!r}; give a ContractionSchedule, as feinsum.pairwise_schedule(e) is")
    schedule.check(e.indexing)
    lengths: dict[str, Length] = {letter: axis for letter, axis in e.index_sizes.items() if isinstance(axis, int)}
    lengths |= e.length_names
    taken = names_of(e) | set(sum_names(e))
    rules, names = _operand_rules(e, taken)
    outputs = sum_names(e) if unfinished else e.output_names
    finishes = [] if unfinished else [OutputEpilogue.of_output(e, k) for k in range(len(e.output_names))]
    steps = Steps(names, outputs, e.row_dtypes, lengths, taken, finishes=finishes, inline=inline)
    steps.add(schedule)
    t_unit = lp.make_kernel(
        steps.domains,
        [*rules, *steps.new_rules, *steps.instructions],
        [*_lowered_arguments(e, steps, np.dtype(index_dtype)), *steps.temporaries],
        name=KERNEL_NAME,
        target=target or lp.PyOpenCLTarget(),
        index_dtype=np.dtype(index_dtype),
        assumptions=" and ".join(f"{p} >= 1" for p in steps.parameters()) or None,
        lang_version=LANGUAGE_VERSION,
    )
    return t_unit if unfinished else with_functions(t_unit, e)


def names_of(e: BatchedEinsum) -> set[str]:
    """The names of all arguments of the kernel of an einsum."""
    return {a.name for a in e.arrays} | set(e.output_names) | set(e.length_names.values()) | set(e.scalars)


def sum_names(e: BatchedEinsum) -> tuple[str, ...]:
    """The name of the sum of each row where it waits for its epilogue; that of the output where there is none."""
    taken = names_of(e)
    if e.combines:
        return tuple(fresh_name(f"{e.output_names[0].replace('out', 'sum', 1)}_{row}", taken) for row in range(e.b))
    epilogues = e.epilogues or (None,) * e.b
    return tuple(
        name if own is None else fresh_name(name.replace("out", "sum", 1), taken)
        for name, own in zip(e.output_names, epilogues, strict=True)
    )


def _lowered_arguments(e: BatchedEinsum, steps: Steps, index_dtype: np.dtype[Any]) -> list[Any]:
    inputs = [lp.GlobalArg(a.name, dtype=a.dtype, shape=steps.shape(at)) for a, at in e.array_indices.items()]
    shape = steps.shape(e.indexing.output)
    outputs = [
        lp.GlobalArg(name, dtype=dtype, shape=shape, is_input=update or name not in steps.outputs)
        for name, dtype, update in zip(e.output_names, e.dtypes, e.updates, strict=True)
    ]
    # Where sums are left unfinished, nothing writes to their outputs yet, but nothing else is to have their names.
    outputs += [
        lp.GlobalArg(name, dtype=dtype, shape=shape, is_input=False)
        for name, dtype in zip(steps.outputs, steps.dtypes, strict=False)
        if name not in e.output_names
    ]
    return [*inputs, *outputs, *scalar_arguments(e), *(lp.ValueArg(name, dtype=index_dtype) for name in steps.parameters())]


def _operand_rules(e: BatchedEinsum, taken: set[str]) -> tuple[list[lp.SubstitutionRule], list[list[str]]]:
    """A substitution rule for each distinct operand, and the name of that of operand k of each row."""
    rules: dict[object, lp.SubstitutionRule] = {}
    known: set[Any] = set()
    # An argument that had the name of an array would be put in for the array too.
    stem = "i"
    while any(name.startswith(stem) and name[len(stem) :].isdigit() for name in taken):
        stem += "_"
    for row, dtype in zip(e.args, e.row_dtypes, strict=True):
        for k, entry in enumerate(row):
            if (k, entry, dtype) not in rules:
                formal = tuple(f"{stem}{axis}" for axis in range(len(entry[0].shape)))
                reads = tuple(_converted_read(a, tuple(map(Variable, formal)), dtype) for a in entry)
                name = fresh_name(_rule_name("_".join(a.name for a in entry), k), taken)
                value = reads[0] if len(reads) == 1 else Product(reads)
                rules[k, entry, dtype] = keep_apart(lp.SubstitutionRule(name, formal, value), known)
    names = [
        [str(rules[k, entry, dtype].name) for k, entry in enumerate(row)]
        for row, dtype in zip(e.args, e.row_dtypes, strict=True)
    ]
    return list(rules.values()), names


def _rule_name(stem: str, k: int) -> str:
    """``D_1`` for operand 1, array D; one that would read like a constant of OpenCL C gets another beginning."""
    name = f"{stem}_{k}"
    return f"op_{name}" if name.startswith(CONSTANT_PREFIXES) else name


def _converted_read(a: Array, at: tuple[Variable, ...], dtype: np.dtype[Any]) -> Any:
    """The read of an array, converted where C would compute in another type than numpy does.

    A real factor of a complex product stays real, which halves the work.
    """
    if np.issubdtype(dtype, np.complexfloating) and not np.issubdtype(a.dtype, np.complexfloating):
        dtype = np.empty(0, dtype).real.dtype
    value = read_element(a.name, at)
    return value if a.dtype == dtype else TypeCast(dtype, value)
