"""A package with a transform space most of whose configurations go wrong, each in its own way.

It is written to a directory of its own and installed like any other, so that worker processes find it.
"""

from __future__ import annotations

SOURCE = '''
import ctypes
import os
import signal
import time

import loopy as lp
import numpy as np
from pymbolic.primitives import If

from feinsum.errors import TransformError
from feinsum.rewrites import spread
from feinsum.space import space

WAYS = (
    "slow", "good", "wrong", "nan", "unwritten", "out of bounds", "far out of bounds", "skips what is written",
    "skips what looks right", "overwrites an input", "reads past an input", "refused", "a bug", "no code",
    "does not compile", "eats the memory", "eats the memory and hangs", "exits", "leaves a child", "leaves a daemon",
    "is killed", "crashes", "hangs", "crashes on the device", "hangs on the device", "good again",
)


def statement(t_unit, code):
    """Add a statement of C at the end of the kernel."""
    kernel = t_unit.default_entrypoint
    before = frozenset(insn.id for insn in kernel.instructions)
    insn = lp.CInstruction((), code, id="rogue", depends_on=before, within_inames=frozenset())
    return t_unit.with_kernel(kernel.copy(instructions=[*kernel.instructions, insn]))


def change(t_unit, factor):
    kernel = t_unit.default_entrypoint
    changed = [insn.copy(expression=factor * insn.expression) for insn in kernel.instructions]
    return t_unit.with_kernel(kernel.copy(instructions=changed))


def vector(match):
    """The name of the operand that has one axis."""
    return next(match.arrays[a.name] for a in match.einsum.arrays if len(a.shape) == 1)


def do_only_where(t_unit, condition):
    """Leave an entry of the output as it is unless a condition on what it is holds."""
    kernel = t_unit.default_entrypoint
    changed = [
        insn.copy(expression=If(lp.symbolic.parse(condition.format(insn.assignee)), insn.expression, insn.assignee))
        for insn in kernel.instructions
    ]
    return t_unit.with_kernel(kernel.copy(instructions=changed))


@space(pattern="abc,c->ba", version=1, parameters={"way": WAYS})
def rogue(t_unit, match, problem, *, way):
    """One of many ways to go wrong."""
    output = match.outputs[0]
    if way == "slow":
        return statement(t_unit, "for (volatile int spin = 0; spin < 1000000; ++spin) ;")
    if way.startswith("good"):
        return spread(t_unit, match, "a", 16, problem.sizes)
    if way == "wrong":
        return change(t_unit, 2)
    if way == "nan":
        return statement(t_unit, f"{output}[0] = NAN;")
    if way == "unwritten":
        kernel = t_unit.default_entrypoint
        most = frozenset([lp.symbolic.parse(match.inames["a"] + " > 0")])
        return t_unit.with_kernel(kernel.copy(instructions=[insn.copy(predicates=most) for insn in kernel.instructions]))
    if way == "skips what is written":
        return do_only_where(t_unit, "{0} != {0}")
    if way == "skips what looks right":
        return do_only_where(t_unit, "not ({0} < 100 and {0} > -100)")
    if way == "overwrites an input":
        return statement(t_unit, f"*(__global double *) ({vector(match)} + 7) = 1;")
    if way == "reads past an input":
        return statement(t_unit, f"{output}[3] += 0 * {vector(match)}[30];")
    if way == "out of bounds":
        return statement(t_unit, f"{output}[-3] = 1;")
    if way == "far out of bounds":
        return statement(t_unit, f"for (int i = 1; i < 5000; ++i) {output}[-i] = 1;")
    if way == "refused":
        raise TransformError("too small for this")
    if way == "a bug":
        return {}["missing"]
    if way == "no code":
        return lp.tag_inames(t_unit, {match.inames["a"]: "l.0", match.inames["b"]: "l.0"})
    if way == "does not compile":
        return statement(t_unit, "this is no C;")
    if way == "eats the memory":
        eaten = []
        while True:
            eaten.append(np.empty(1 << 30, np.uint8))
    if way == "eats the memory and hangs":
        eaten = []
        try:
            while True:
                eaten.append(np.empty(1 << 26, np.uint8))
        except MemoryError:
            time.sleep(3600)
    if way == "exits":
        os._exit(3)
    if way.startswith("leaves a "):
        if os.fork():
            os._exit(3)
        if way == "leaves a daemon":
            os.setsid()
        time.sleep(60)
        os._exit(0)
    if way == "is killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if way == "crashes":
        ctypes.string_at(0)
    if way == "hangs":
        time.sleep(3600)
    if way == "crashes on the device":
        return statement(t_unit, "*(__global volatile int *) 64 = 1;")
    if way == "hangs on the device":
        return statement(t_unit, "volatile int forever = 1; while (forever) ;")
    raise AssertionError(way)


@space(pattern="abc,c->ab", version=1, parameters={"number": tuple(range(40)), "pause": (0.2,)})
def leisurely(t_unit, match, problem, *, number, pause):
    """Right, and in no hurry."""
    time.sleep(pause)
    return spread(t_unit, match, "a", 16, problem.sizes)
'''
