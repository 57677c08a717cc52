"""Kernels of thread scopes: one work-group, whose statements are written one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from feinsum.languages.declarative.emitting.kernels import Emitter, KernelText, Spread
from feinsum.languages.declarative.emitting.types import c_type
from feinsum.languages.declarative.lowering.terms import Load
from feinsum.languages.declarative.lowering.threads import (
    Evaluate,
    GroupBarrier,
    Guard,
    RepeatStatement,
    Statement,
    Store,
    ThreadArray,
    ThreadScope,
)

_BARRIER = "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);"


def thread_kernel(
    name: str, scope: ThreadScope, arrays: Mapping[str, tuple[tuple[int, ...], str]], spread: Spread
) -> KernelText:
    """The kernel of a scope."""
    emitter = Emitter(name, arrays, Spread(max(scope.thread.extent, 1), spread.units, tree=False))
    writer = emitter.writer
    writer.line("const int lid = get_local_id(0);")
    writer.define(scope.thread, "lid")
    for memory in scope.memory:
        if memory.kind != "shared":
            space = "__local " if memory.kind == "Shared" else ""
            writer.line(f"{space}{c_type(memory.dtype)} row_{memory.array}[{max(prod(memory.shape), 1)}];")
            emitter.on_chip[memory.array] = (0, memory.shape)
    for memory in scope.memory:
        if memory.begins:
            _copy_initial_values(emitter, memory)
    _write_statements(emitter, scope.body)
    return emitter.finish(1)


def _copy_initial_values(emitter: Emitter, memory: ThreadArray) -> None:
    """Copy what was there before."""
    writer, count = emitter.writer, prod(memory.shape)
    emitter.used[memory.array] = True
    emitter.used.setdefault(memory.begins, False)
    with writer.braces(f"for (int e = lid; e < {count}; e += {emitter.spread.lanes})"):
        writer.line(f"{memory.array}[e] = {memory.begins}[e];")
    writer.line(_BARRIER)


def _write_statements(emitter: Emitter, body: tuple[Statement, ...]) -> None:
    """Statements; each in braces of its own, as what is known of memory holds for one statement only."""
    writer = emitter.writer
    for statement in body:
        match statement:
            case GroupBarrier():
                writer.line(_BARRIER)
            case Store(array=array, indices=indices, value=value):
                with writer.braces(""):
                    places, text = [writer.value(i) for i in indices], writer.value(value)
                    if array in emitter.on_chip:
                        writer.line(f"{emitter.place(Load(value.dtype, array, indices), places)} = {text};")
                    else:
                        emitter.store(array, places, text)
            case Evaluate(variable=variable, value=value):
                name = writer.declare(c_type(variable.dtype), word="n")
                with writer.braces(""):
                    writer.line(f"{name} = {writer.value(value)};")
                writer.define(variable, name)
            case Guard(condition=condition, body=inner):
                name = writer.declare("int", word="c")
                with writer.braces(""):
                    writer.line(f"{name} = {writer.value(condition)};")
                with writer.braces(f"if ({name})"):
                    _write_statements(emitter, inner)
            case RepeatStatement(index=index, body=inner):
                number = writer.fresh("i")
                with writer.braces(f"for (int {number} = 0; {number} < {index.extent}; {number}++)"):
                    writer.define(index, number)
                    _write_statements(emitter, inner)
