"""Control: loops, branches and regions of work-items as C.

Where work-items have to meet inside a region that not all of them enter, all do, and a mask says who takes part:

    foreach (%i) = (%0), (%n) { talk }   ->   for (long b = 0; b < n; b += ITEMS) { int m = b + lid < n; ... }
    if %c { X } else { Y }               ->   int m = c; X for m; Y for !m
    for %i = %a, %b { talk }             ->   for (long i = a; any(i < b); ++i) { int m = i < b; ... }
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from math import gcd
from typing import Any, Final

import cgen

from feinsum.languages.tensor.checking.uniformity import UNIFORM
from feinsum.languages.tensor.emitting import matrices
from feinsum.languages.tensor.emitting.context import Context, branch, known_number
from feinsum.languages.tensor.emitting.layouts import Matrix
from feinsum.languages.tensor.emitting.numbers import c_type_of
from feinsum.languages.tensor.ir import TensorOperation, TensorRegion, TensorValue
from feinsum.languages.tensor.memory_effects import TALKS
from feinsum.languages.tensor.types import I64, Boolean, Coopmatrix, TensorScalar

Emitter = Callable[[Context, TensorOperation], None]
Run = Callable[[Context, TensorRegion], Sequence[TensorValue]]
"""Emits the operations of a region, and gives the values that it yields."""


def _talks(context: Context, region: TensorRegion) -> bool:
    """Whether work-items meet in a region."""
    return not context.target.is_alone and any(operation.name in TALKS for operation in region.walk())


def emit_parallel(context: Context, operation: TensorOperation, run: Run) -> None:
    context.collective = False
    with context.block() as inside:
        run(context, operation.regions[0])
    context.body.append(cgen.Block(inside))
    context.collective = True


def emit_foreach(context: Context, operation: TensorOperation, run: Run) -> None:
    """The first variable is the fastest."""
    (region,) = operation.regions
    count = len(region.parameters)
    lower = [context.text(value) for value in operation.operands[:count]]
    upper = [context.text(value) for value in operation.operands[count:]]
    context.collective = False
    if context.target.is_alone:
        _nested(context, region, lower, upper, run)
    else:
        _spread_iterations(context, region, lower, upper, run)
    context.collective = True


def _nested(context: Context, region: TensorRegion, lower: list[str], upper: list[str], run: Run) -> None:
    with ExitStack() as loops:
        for variable, begin, end in reversed(list(zip(region.parameters, lower, upper, strict=True))):
            name = context.fresh(variable.name)
            loops.enter_context(context.loop(f"long {name} = {begin}", f"{name} < {end}", f"++{name}"))
            _set_variable(context, variable, name)
        run(context, region)


def _set_variable(context: Context, variable: TensorValue, name: str) -> None:
    assert isinstance(variable.type, TensorScalar)
    c = c_type_of(variable.type)
    context.values[variable] = name if c == "long" else context.declare(f"{c} const", variable.name, f"({c}){name}")


def _spread_iterations(context: Context, region: TensorRegion, lower: list[str], upper: list[str], run: Run) -> None:
    sizes = [
        context.declare("long const", "size", f"max((long){end} - (long){begin}, 0L)")
        for begin, end in zip(lower, upper, strict=True)
    ]
    total = context.declare("long const", "total", " * ".join(sizes))
    # PoCL 3.1 drops parts of later sums where a loop of a known step is no more than a branch
    items = str(context.target.work_items) if context.target.shuffles else "(long)get_local_size(0)"
    base = context.fresh("base")
    meets = _talks(context, region)
    start = "0" if meets else "lid"
    with context.loop(f"long {base} = {start}", f"{base} < {total}", f"{base} += {items}"):
        mask = None
        number = base
        if meets:
            mask = context.declare("int const", "active", f"{base} + lid < {total}")
            number = context.declare("long const", "number", f"min({base} + lid, {total} - 1)")
        rest = number
        for position, (variable, begin, size) in enumerate(zip(region.parameters, lower, sizes, strict=True)):
            last = position == len(sizes) - 1
            place = rest if last else f"{rest} % {size}"
            name = context.declare("long const", variable.name, f"{begin} + {place}")
            _set_variable(context, variable, name)
            if not last:
                rest = context.declare("long const", "rest", f"{rest} / {size}")
        with context.masked(mask):
            run(context, region)


# values that regions give


def _declare_variable(context: Context, value: TensorValue) -> Any:
    """A variable for a value that regions assign."""
    if isinstance(value.type, Coopmatrix):
        return matrices.declare(context, value)
    assert isinstance(value.type, (TensorScalar, Boolean))
    return context.declare(c_type_of(value.type), value.name)


def _set(context: Context, variable: Any, found: Any) -> None:
    if variable == found:
        return
    if isinstance(variable, Matrix):
        matrices.fill_matrix(context, variable, lambda q: f"{found.name}[{q}]")
    else:
        context.put(f"{variable} = {found}")


def _deliver(context: Context, variables: Sequence[Any], yielded: Sequence[TensorValue]) -> None:
    """Assign all at once: what is itself one of the variables is kept apart first."""
    found = [context.values[value] for value in yielded]
    for position, (value, one) in enumerate(zip(yielded, found, strict=True)):
        if one in variables and one != variables[position]:
            kept = _declare_variable(context, value)
            _set(context, kept, one)
            found[position] = kept
    with context.guard(context.mask):
        for variable, one in zip(variables, found, strict=True):
            _set(context, variable, one)


def emit_if(context: Context, operation: TensorOperation, run: Run) -> None:
    (condition,) = operation.operands
    test = context.text(condition)
    variables = [_declare_variable(context, value) for value in operation.results]
    varying = context.mask is not None or context.levels.get(condition, UNIFORM) != UNIFORM
    if varying and any(_talks(context, region) for region in operation.regions):
        test = context.declare("int const", "taken", test)
        for sign, region in zip(("", "!"), operation.regions, strict=False):
            both = f"{context.mask} && {sign}{test}" if context.mask else f"{sign}{test}"
            with context.masked(context.declare("int const", "active", both)), context.block() as inside:
                _deliver(context, variables, run(context, region))
            context.body.append(cgen.Block(inside))
    else:
        context.meets_in_branch |= any(_talks(context, region) for region in operation.regions)
        test = f"{context.mask} && {test}" if context.mask else test
        branches = []
        outer = context.mask
        for region in operation.regions:
            with context.masked(None), context.block() as inside:
                _deliver(context, variables, run(context, region))
            branches.append(inside)
        if len(branches) == 2 and outer:
            context.body.append(branch(test, branches[0]))
            context.body.append(branch(f"{outer} && !{context.text(condition)}", branches[1]))
        else:
            context.body.append(branch(test, *branches))
    context.values.update(zip(operation.results, variables, strict=True))


def emit_for(context: Context, operation: TensorOperation, run: Run) -> None:
    """Loop variables are counted in 64 bits, so that a small type does not wrap before the loop ends."""
    (region,) = operation.regions
    variable, *carried = region.parameters
    bounds = operation.loop_bounds
    begin, end, *steps = [context.text(value) for value in bounds]
    step = steps[0] if steps else "1"
    variables = [_declare_variable(context, value) for value in carried]
    starts = [context.values[value] for value in operation.operands[len(bounds) :]]
    for one, start in zip(variables, starts, strict=True):
        _set(context, one, start)
    context.values.update(zip(carried, variables, strict=True))
    name = context.fresh(variable.name)
    context.divisors[variable] = gcd(*(known_number(text) for text in (begin, step)))
    varying = context.mask is not None or any(context.levels.get(value, UNIFORM) != UNIFORM for value in bounds)
    if unroll := operation.annotations.get("unroll"):
        context.body.append(cgen.Line("__attribute__((opencl_unroll_hint))" if unroll is True else "#pragma unroll 1"))
    if varying and _talks(context, region):
        _loop_of_some(context, region, name, (begin, end, step), variables, run)
    else:
        mask = context.mask
        guarded = f"{mask} && {name} < {end}" if mask else f"{name} < {end}"
        with context.loop(f"long {name} = {begin}", guarded, _next_value(variable, name, end, step)), context.masked(None):
            _set_variable(context, variable, name)
            _deliver(context, variables, run(context, region))
    context.values.update(zip(operation.results, variables, strict=True))


def _next_value(variable: TensorValue, name: str, end: str, step: str) -> str:
    """The update of a loop variable, which does not step beyond 64 bits: no array has as many elements, so that an
    index does not get there."""
    if variable.type != I64 or step.rstrip("L") == "1":
        return f"{name} += {step}"
    return f"{name} = (ulong){end} - (ulong){name} > (ulong){step} ? {name} + {step} : {end}"


def _loop_of_some(
    context: Context, region: TensorRegion, name: str, bounds: tuple[str, str, str], variables: Sequence[Any], run: Run
) -> None:
    """A loop that goes on while that of any work-item does."""
    begin, end, step = bounds
    flag = context.local_array("anybody", "int", 1)
    with context.loop(f"long {name} = {begin}", "true", _next_value(region.parameters[0], name, end, step)):
        test = f"{name} < {end}"
        going = context.declare("int const", "going", f"{context.mask} && {test}" if context.mask else test)
        context.put(f"if (!any_of({flag}, lid, {going})) break")
        with context.masked(going):
            _set_variable(context, region.parameters[0], name)
            _deliver(context, variables, run(context, region))


EMITTERS: Final[Mapping[str, Callable[[Context, TensorOperation, Run], None]]] = {
    "for": emit_for,
    "foreach": emit_foreach,
    "if": emit_if,
    "parallel": emit_parallel,
}
ANY_OF: Final = """
int any_of(__local int *flag, int lid, int here)
{
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lid == 0) *flag = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (here) *flag = 1;
    barrier(CLK_LOCAL_MEM_FENCE);
    return *flag;
}
"""
