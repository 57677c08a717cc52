"""Kernels: a lowered function as the text of an OpenCL C kernel, and what its arguments are.

Parameters come in order: a memref is a pointer, its unknown sizes and its unknown strides; a group is a pointer, a table
of offsets, tables of unknown sizes and strides, and its size; a complex number is its two parts.  The last two are the
number of instances, and how many of them a work-group takes one after the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import cgen

from feinsum.devices.vendors.known_vendors import matrix_units
from feinsum.devices.vendors.units import MatrixUnit
from feinsum.languages.source import Span
from feinsum.languages.tensor.checking.uniformity import levels
from feinsum.languages.tensor.emitting import (
    atomics,
    control,
    coopmatrix_products,
    matrices,
    matrix_memory,
    memory,
    numbers,
    scalars,
    sub_groups,
)
from feinsum.languages.tensor.emitting.context import Amount, Context, EmittedGroup, EmittedView, for_statement
from feinsum.languages.tensor.emitting.fragments import lane_digits
from feinsum.languages.tensor.emitting.numbers import c_type_of, pointer_type
from feinsum.languages.tensor.ir import TensorFunction, TensorRegion, TensorValue
from feinsum.languages.tensor.lowering.target import Target
from feinsum.languages.tensor.passes.storage import spans
from feinsum.languages.tensor.types import Boolean, Extent, PointerGroup, TensorMemref, TensorScalar

PLAIN: Final = {
    **memory.EMITTERS,
    **scalars.EMITTERS,
    **matrices.EMITTERS,
    **matrix_memory.EMITTERS,
    **coopmatrix_products.EMITTERS,
    **sub_groups.EMITTERS,
}
"""The code that is emitted for each instruction without regions."""


@dataclass(frozen=True)
class Slot:
    """An argument of the kernel.

    :ivar kind: "buffer", "number", "size", "stride", "offsets", "sizes", "strides", "group size", "count", "chunk", "spill"
        or "fault".
    :ivar parameter: the parameter of the function that it is a part of.
    :ivar mode: which mode of it, or which part of a complex number; of "spill" the bytes of a work-group.
    """

    kind: str
    parameter: TensorValue | None = None
    mode: int = 0


@dataclass(frozen=True)
class Emitted:
    """A kernel.

    :ivar spans: where the accesses stand that are checked; the kernel reports one by its number, from 1.
    :ivar units: the matrix units that it uses.
    :ivar meets_in_branch: whether there is a barrier in a branch.
    :ivar local_bytes: memory of the work-group, or of the work-item where there is one only.
    """

    name: str
    source: str
    slots: tuple[Slot, ...]
    local_bytes: int
    needs_double: bool
    needs_wide_atomics: bool
    spans: tuple[Span, ...] = ()
    units: tuple[str, ...] = ()
    meets_in_branch: bool = False


MOST_PRIVATE_BYTES: Final = 32 << 10
"""The most bytes of allocas if one work-item computes an instance; larger ones go to local memory, as stacks are small."""


def emit(function: TensorFunction, target: Target, check: bool = False, most_local_bytes: int = 1 << 15) -> Emitted:
    """The kernel of a function that all passes have seen.

    :param most_local_bytes: local memory of a work-group; allocas that need more lie in global memory.
    :param check: whether loads and stores are checked, and the line of one that is out of bounds is written to `fault`.
    """
    context = Context(function, target, levels(function), check)
    context.alloca_space = _alloca_space(function, target, most_local_bytes)
    slots: list[Slot] = []
    arguments = list(_declare_arguments(context, slots))
    _emit_region(context, function.body)
    for name, (c, length) in context.spilled.items():
        slots.append(Slot("spill", None, _SIZES[c] * length))
        arguments.append(f"__global {c} *const restrict all_{name}")
    if check:
        slots.append(Slot("fault"))
        arguments.append("__global int *fault")
    body = context.body
    if context.locals or context.spilled:
        context.body = []
        context.barrier(True, True)
        body = [*body, *context.body]
    name = f"tensor_{re.sub(r'[^A-Za-z0-9_]', '_', function.name)}"
    kernel = _emit_kernel(context, name, arguments, body)
    text = f"{kernel}\n"
    preamble = _preamble(text, _functions(context))
    local = sum(_SIZES[c] * n for c, n in context.locals.values())
    whole = f"{preamble}\n{text}" if preamble else text
    wide = "atom_" in whole
    pragmas = _pragmas("double" in whole, wide)
    return Emitted(
        name, pragmas + whole, tuple(slots), local, "double" in whole, wide, tuple(context.spans), tuple(context.units),
        context.meets_in_branch,
    )  # fmt: skip


_SIZES: Final = {
    "char": 1, "short": 2, "int": 4, "long": 8, "ushort": 2, "float": 4, "double": 8, "float2": 8, "double2": 16
}  # fmt: skip


def _pragmas(double: bool, wide: bool) -> str:
    names = (["cl_khr_fp64"] if double else []) + (["cl_khr_int64_base_atomics"] if wide else [])
    return "".join(f"#pragma OPENCL EXTENSION {name} : enable\n" for name in names)


def _emit_region(context: Context, region: TensorRegion) -> Sequence[TensorValue]:
    """Emit operations; the values that are yielded."""
    for operation in region.operations:
        if operation.name == "yield":
            return operation.operands
        context.span = operation.span
        if operation.name in control.EMITTERS:
            control.EMITTERS[operation.name](context, operation, _emit_region)
        else:
            PLAIN[operation.name](context, operation)
    return ()


def _declare_arguments(context: Context, slots: list[Slot]) -> Iterator[str]:
    """The declarations of the kernel's arguments; values get what they are."""
    for value in context.function.parameters:
        name = context.fresh(value.name)
        type_ = value.type
        if isinstance(type_, TensorMemref):
            yield from _declare_memref(context, slots, value, type_, name)
        elif isinstance(type_, PointerGroup):
            yield from _group(context, slots, value, type_, name)
        else:
            assert isinstance(type_, (TensorScalar, Boolean))
            yield from _declare_number(context, slots, value, type_, name)
    slots += [Slot("count"), Slot("chunk")]
    yield "long const count"
    yield "long const chunk"


def _declare_number(
    context: Context, slots: list[Slot], value: TensorValue, type_: TensorScalar | Boolean, name: str
) -> Iterator[str]:
    if isinstance(type_, TensorScalar) and type_.is_complex:
        part = c_type_of(type_.component)
        for number in range(2):
            slots.append(Slot("number", value, number))
            yield f"{part} const {name}_{number}"
        context.values[value] = f"({c_type_of(type_)})({name}_0, {name}_1)"
        return
    slots.append(Slot("number", value))
    context.values[value] = name
    yield f"{c_type_of(type_)} const {name}"


def _amounts(slots: list[Slot], value: TensorValue, extents: Sequence[Extent], name: str, kind: str) -> list[Amount]:
    found: list[Amount] = []
    for mode, extent in enumerate(extents):
        if extent is None:
            slots.append(Slot(kind, value, mode))
            found.append(f"{name}_{'n' if kind.startswith('size') else 's'}{mode}")
        else:
            found.append(extent)
    return found


def _declare_memref(
    context: Context, slots: list[Slot], value: TensorValue, type_: TensorMemref, name: str
) -> Iterator[str]:
    slots.append(Slot("buffer", value))
    yield f"__global {pointer_type(type_.element)} *restrict {name}"
    shape = _amounts(slots, value, type_.shape, name, "size")
    strides = _amounts(slots, value, type_.strides, name, "stride")
    yield from (f"long const {amount}" for amount in (*shape, *strides) if isinstance(amount, str))
    # hosts' arrays begin anywhere, but those are for targets that load no vectors so
    context.values[value] = EmittedView(name, type_.element, "global", tuple(shape), tuple(strides), 128)


def _group(context: Context, slots: list[Slot], value: TensorValue, type_: PointerGroup, name: str) -> Iterator[str]:
    memref = type_.memref
    slots += [Slot("buffer", value), Slot("offsets", value)]
    yield f"__global {pointer_type(memref.element)} *restrict {name}"
    yield f"__global long const *restrict {name}_offsets"
    shape = _amounts(slots, value, memref.shape, name, "sizes")
    strides = _amounts(slots, value, memref.strides, name, "strides")
    yield from (f"__global long const *restrict {amount}" for amount in (*shape, *strides) if isinstance(amount, str))
    slots.append(Slot("group size", value))
    yield f"long const {name}_size"
    context.values[value] = EmittedGroup(
        name, f"{name}_offsets", f"{name}_size", tuple(shape), tuple(strides), memref.element
    )


def _alloca_space(function: TensorFunction, target: Target, most_local_bytes: int) -> str:
    longest: dict[TensorScalar, int] = {}
    for element, _, end in spans(function).values():
        longest[element] = max(longest.get(element, 0), end * element.size_bytes)
    needed = sum(longest.values())
    if target.is_alone and needed <= MOST_PRIVATE_BYTES:
        return "private"
    return "local" if needed <= most_local_bytes else "global"


def _emit_kernel(context: Context, name: str, arguments: Sequence[str], body: list[Any]) -> str:
    """The kernel: one instance after the other, from the first of a work-group to the last."""
    target = context.target
    head: list[Any] = []
    for array, (type_, length) in context.spilled.items():
        place = f"all_{array} + get_group_id(0) * {length}"
        head.append(cgen.Statement(f"__global {type_} *const restrict {array} = {place}"))
    for array, (type_, length) in context.locals.items():
        private = context.alloca_space == "private" and array.startswith("stack_")
        space = "" if private else "__local "
        # vectors are loaded from it
        head.append(cgen.Statement(f"{space}{type_} {array}[{length}] __attribute__((aligned(128)))"))
    if not target.is_alone:
        head.append(cgen.Statement("int const lid = (int)get_local_id(0)"))
        head.append(cgen.Statement(f"int const lane = lid % {target.subgroup_size}"))
        head.append(cgen.Statement(f"int const subgroup = lid / {target.subgroup_size}"))
    else:
        head.append(cgen.Statement("int const lid = 0, lane = 0, subgroup = 0"))
    if context.units:
        head.append(cgen.Statement(f"int const {lane_digits(_units(context))}"))
    head.append(cgen.Statement("long const first = (long)get_group_id(0) * chunk"))
    head.append(cgen.Statement("long const last = min(first + chunk, count)"))
    head.append(for_statement("long gid = first", "gid < last", "++gid", body))
    block = "\n".join(cgen.Block(head).generate())
    attributes = dict.fromkeys(unit.attribute for unit in _units(context) if unit.attribute)
    size = " ".join([f"__attribute__((reqd_work_group_size({target.work_items}, 1, 1)))", *attributes])
    listed = ",\n    ".join(arguments)
    return f"__kernel {size}\nvoid {name}(\n    {listed})\n{block}"


_FUNCTIONS: Final = {
    **numbers.PREAMBLE,
    **atomics.HELPERS,
    "any_of": control.ANY_OF,
}


def _units(context: Context) -> list[MatrixUnit]:
    return [matrix_units()[name] for name in context.units]


def _functions(context: Context) -> dict[str, str]:
    """The functions that a kernel may call, by name."""
    shuffles = context.target.shuffles
    found = {**_FUNCTIONS, **(shuffles.functions if shuffles else {})}
    for unit in _units(context):
        found |= {**unit.helpers, unit.called(): unit.function()}
    return found


def _preamble(text: str, functions: Mapping[str, str]) -> str:
    """The functions that a text calls, and those that they call, in the order of their needs."""
    found: dict[str, str] = {}

    def visit(caller: str) -> None:
        for word in dict.fromkeys(re.findall(r"[A-Za-z_]\w*", caller)):
            if word in found:
                continue
            function = functions.get(word)
            if function is None and (match := re.fullmatch(r"atomic_add_([a-z]+\d+)_(global|local)", word)):
                function = atomics.function(*match.groups())
            if function is not None and f" {word}(" not in caller.split("{")[0]:
                visit(function)
                found[word] = function.lstrip("\n")

    visit(text)
    return "\n".join(found.values())
