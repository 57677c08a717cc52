"""Kernels for NVIDIA devices on a CPU, whose sub-groups simulate the matrix units and whose work-items copy at once."""

from __future__ import annotations

import re

import feinsum as fe
from feinsum.compile.executable import Executable
from feinsum.compile.kernel_program import KernelProgram
from feinsum.devices.opencl import build_program
from feinsum.skeletons.instructions.matrix_units import SUB_GROUP

UNOPTIMISED = ("-cl-opt-disable",)
"""What is proved is which lane computes what from where; Intel's compiler takes 7 to 15 times as long to make it quick.

Kernels as users get them are built in the tests of spaces' defaults, of ``generate`` and of ``contract``.
"""

STATEMENT = re.compile(
    r'asm\("mma\.sync\.aligned\.m16n8k(\d+)\.row\.col\.(?:f64|f32)\.(f64|tf32|f16|bf16)[^"]*" : ([^;]*?) : ([^;]*?)\);'
)
"""The statement of a unit: its depth, the type of its operands, outputs and inputs."""

PAIR = re.compile(r'asm\("cvt\.rn\.f16x2\.f32 %0, %1, %2;" : "=r"\((\w+)\) : "f"\((\w+)\), "f"\((\w+)\)\);')
"""Two numbers of two bytes in one register: where, the one in the upper half, and the one in the lower."""

ASYNC_COPY = re.compile(
    r'asm volatile\("cp\.async\.c[ag][^"]*\], (\d+), %2;" : : "r"\(\(uint\)\(size_t\)\((.*?)\)\), '
    r'"l"\(\(size_t\)\((.*?)\)\), "r"\(\(int\)\((\w+)\)\)\);'
)
"""An asynchronous copy: how many bytes it writes, where to and where from, and how many there are."""

COPY_FUNCTION = re.compile(r"(static inline void feinsum_copy_float\d\dx?(\d?)\([^)]*\))\n\{.*?\n\}", re.DOTALL)
"""The same as a function, of one number or several."""

CUT = """
static double first_bits(float a) { return as_float(as_uint(a) & 0xffffe000u); }
static double cut(float a, float b) { return first_bits(a) * first_bits(b); }
static uint to_f16(float x) { ushort number; vstore_half_rte(x, 0, (half *) &number); return number; }
static float of_f16(uint bits) { ushort number = bits; return vload_half(0, (half *) &number); }
"""
"""The product that a unit for tf32 makes of its operands: exact, of their first 11 bits; and numbers of two bytes."""


def simulate(source: str) -> str:
    """The same program with each unit, and the wait of a sub-group, in terms of OpenCL's sub-groups, and nothing hidden.

    The unit for tf32 ignores the last 13 bits of its operands and rounds its sums towards zero, as do those for numbers of
    two bytes.  Every work-item copies at once what a GPU would copy meanwhile.
    """

    def unit(match: re.Match[str]) -> str:
        if match[2] in ("f16", "bf16"):
            return _unit_of_halves(match)
        depth, double = int(match[1]), match[2] == "f64"
        d = re.findall(r'"\+\w"\((\w+)\)', match[3])
        inputs = re.findall(r'"\w"\((?:as_uint)?\(*(\w+)\)+', match[4])
        a, b = inputs[: depth // 2], inputs[depth // 2 :]
        lines = ["{ uint lane = get_sub_group_local_id(), g = lane / 4, t = lane % 4;"]
        lines += [f"double e{i} = {d[i]};" for i in range(4)]
        for k in range(depth):
            for row in range(2):
                lines.append(
                    f"{{ {'double' if double else 'float'} x = sub_group_shuffle({a[row + 2 * (k // 4)]}, g * 4 + {k % 4});"
                )
                for column in range(2):
                    y = f"sub_group_shuffle({b[k // 4]}, (2 * t + {column}) * 4 + {k % 4})"
                    e = f"e{2 * row + column}"
                    lines.append(f"{e} = fma(x, {y}, {e});" if double else f"{e} += cut(x, {y});")
                lines.append("}")
        return "\n".join([*lines, *(f"{d[i]} = {'' if double else 'convert_float_rtz'}(e{i});" for i in range(4)), "}"])

    def copy(match: re.Match[str]) -> str:
        return f"{match[1]} {{ for (int i = 0; i < {match[2] or 1}; ++i) to[i] = bytes ? from[i] : 0; }}"

    source = COPY_FUNCTION.sub(copy, STATEMENT.sub(unit, PAIR.sub(r"\1 = to_f16(\2) << 16 | to_f16(\3);", source)))
    source = ASYNC_COPY.sub(
        r"for (int at = 0; at < \1; ++at)"
        r" ((__local char *) (\2))[at] = at < \4 ? ((__global char const *) (\3))[at] : (char) 0;",
        source,
    )
    source = re.sub(r'asm volatile\("((cp\.async|nanosleep)\.[^;]*;)?" ?:[^;]*;', "", source)
    source = re.sub(
        r'asm volatile\("bar\.warp\.sync[^;]*;" ::: "memory"\);', "sub_group_barrier(CLK_LOCAL_MEM_FENCE);", source
    )
    size = f"__attribute__((intel_reqd_sub_group_size({SUB_GROUP})))"
    source = re.sub(r"(__attribute__ *\(\(reqd_work_group_size\([^)]*\)\)\))", rf"\1 {size}", source)
    return f"#pragma OPENCL EXTENSION cl_khr_subgroup_shuffle : enable\n{CUT}{source}"


def _unit_of_halves(match: re.Match[str]) -> str:
    """A unit whose work-items have two numbers in a register: of columns 2 t and 2 t + 1 of A, or those 8 further."""
    d = re.findall(r'"\+\w"\((\w+)\)', match[3])
    inputs = re.findall(r'"r"\((\w+)\)', match[4])
    lines = ["{ uint lane = get_sub_group_local_id(), g = lane / 4, t = lane % 4;"]
    lines += [f"double e{i} = {d[i]};" for i in range(4)]

    def number(register: str, lane: str, high: int) -> str:
        bits = f"(sub_group_shuffle({register}, {lane}) >> {16 * high})"
        return f"of_f16({bits})" if match[2] == "f16" else f"as_float({bits} << 16)"

    for k in range(int(match[1])):
        half, item, high = k // 8, k % 8 // 2, k % 2
        for row in range(2):
            x = number(inputs[row + 2 * half], f"g * 4 + {item}", high)
            for column in range(2):
                y = number(inputs[4 + half], f"(2 * t + {column}) * 4 + {item}", high)
                lines.append(f"e{2 * row + column} += (double) {x} * {y};")
    return "\n".join([*lines, *(f"{d[i]} = convert_float_rtz(e{i});" for i in range(4)), "}"])


def build_simulated(device: fe.Device, program: KernelProgram) -> Executable:
    """A program for a CPU that simulates what it needs; see :data:`UNOPTIMISED`."""
    return Executable(program, build_program(device.context, simulate(program.source), UNOPTIMISED))


def build_unoptimised(device: fe.Device, program: KernelProgram) -> Executable:
    """A program as it is; see :data:`UNOPTIMISED`."""
    return Executable(program, build_program(device.context, program.source, UNOPTIMISED))
