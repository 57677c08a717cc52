"""``python -m benchmarks tensor``: programs of the tensor language by both routes, compared with peers.

Of each case the *general* route, the *einsum* route and the einsum that a user of :func:`feinsum.generate` would write are
timed in turns with torch, JAX and numpy, or CuPy on a GPU, where these are installed.  What a way computes is compared with
numpy before it is timed.  On a device with matrix units the general route is timed without them too, as *items*.

All arrays of a case are listed as the program has them, column-major; peers get the same memory as C-contiguous batches,
so that ``C = A B`` of the program is ``c = b @ a`` of theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from math import comb
from types import SimpleNamespace
from typing import Any

import numpy as np

import feinsum as fe
from benchmarks.engines.problem import Values
from benchmarks.measure import Contest, Sampler
from benchmarks.peers.base import Work
from feinsum.languages.calling.protocols import ProgramCall
from feinsum.languages.tensor.lowering.target import choose_target
from feinsum.languages.tensor.running.kernel import GeneralKernel
from feinsum.timing.races import Race

OURS = ("general", "items", "einsum", "generate")

PERIOD = 1024
"""After so many instances the numbers are the same again."""


@dataclass(frozen=True)
class Case:
    """A program beside what peers do.

    :ivar text: the program.
    :ivar dtype: of all arrays.
    :ivar shapes: of the arrays in column-major order; "E" is the number of instances.
    :ivar output: the array that is written.
    :ivar numbers: scalars that are given at the call.
    :ivar einsum: the subscripts and operands that `generate` is asked for, in C order, and the epilogue; None for what is
        several einsums.
    :ivar compute: the new output from C-contiguous batches, written with ``@`` and ``+``, see :class:`Work`.
    :ivar special: the same by functions that write a given array, by the name of a peer.
    """

    name: str
    text: str
    dtype: str
    shapes: Mapping[str, tuple[int | str, ...]]
    output: str
    numbers: Mapping[str, float]
    einsum: tuple[str, tuple[str, ...], str] | None
    compute: Callable[..., Any]
    special: Mapping[str, Callable[..., Any]] = field(default_factory=dict)

    @property
    def instance_bytes(self) -> int:
        """What an instance reads and writes, each array once."""
        own = [shape[:-1] for shape in self.shapes.values() if shape[-1] == "E"]
        return sum(int(np.prod([int(n) for n in shape])) for shape in own) * np.dtype(self.dtype).itemsize

    def arrays(self, count: int) -> dict[str, Any]:
        """Random arrays of both signs, in order F, of which :data:`PERIOD` instances differ."""
        rng = np.random.default_rng(0)
        lengths = {name: tuple(count if n == "E" else int(n) for n in shape) for name, shape in self.shapes.items()}
        return {name: _numbers(rng, shape, self.dtype) for name, shape in lengths.items()}


def _numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Any:
    """Random numbers; those of the first instances again and again."""
    first, *rest = shape[::-1]
    values = rng.standard_normal((min(first, PERIOD), *rest), dtype="float32").astype(dtype)
    return np.resize(values, (first, *rest)).T


def gemm(n: int, dtype: str, beta: int) -> Case:
    """``C := A B + β C`` for a batch of square matrices."""
    t = _type(dtype)
    lines = [f"%beta = constant {beta}.0 : {t}", f"%alpha = constant 1.0 : {t}", "%id = builtin.group_id : index"]
    lines += [f"%{x.lower()} = subview %{x}[0:{n}, 0:{n}, %id] : memref<{t}x{n}x{n}>" for x in "ABC"]
    lines += ["gemm.n.n %alpha, %a, %b, %beta, %c"]
    parameters = ", ".join(f"%{x}: memref<{t}x{n}x{n}x?>" for x in "ABC")
    shapes = dict.fromkeys("ABC", (n, n, "E"))

    def compute(xp: Any, A: Any, B: Any, C: Any) -> Any:
        return B @ A + C if beta else B @ A

    def by_torch(xp: Any, A: Any, B: Any, C: Any) -> Any:
        return xp.torch.baddbmm(C, B, A, out=C) if beta else xp.torch.bmm(B, A, out=C)

    special = {"torch": by_torch} | ({} if beta else {"numpy": lambda xp, A, B, C: np.matmul(B, A, out=C)})
    einsum = "enk,ekm->enm", ("B", "A"), "v + out" if beta else ""
    name = f"gemm {n}^3 {dtype} beta {beta}"
    return Case(name, _function(parameters, lines), dtype, shapes, "C", {}, einsum, compute, special)


def unknown_gemm(n: int, dtype: str) -> Case:
    """``C := A B + C`` for a batch of matrices whose sizes the program leaves open; they are square in the call."""
    t = _type(dtype)
    lines = [f"%one = constant 1.0 : {t}", "%id = builtin.group_id : index"]
    for x in "ABC":
        lines += [f"%rows{x} = size %{x}[0] : index", f"%columns{x} = size %{x}[1] : index"]
        lines += [f"%{x.lower()} = subview %{x}[0:%rows{x}, 0:%columns{x}, %id] : memref<{t}x?x?,strided<1,?>>"]
    lines += ["gemm.n.n %one, %a, %b, %one, %c"]
    parameters = ", ".join(f"%{x}: memref<{t}x?x?x?>" for x in "ABC")
    fixed = gemm(n, dtype, 1)
    return replace(fixed, name=f"gemm ? {n}^3 {dtype}", text=_function(parameters, lines), einsum=None)


def chain(dtype: str, rows: int = 56, columns: int = 9) -> Case:
    """``Q := K P A + Q``, of which K is the same for all."""
    t, m, q = _type(dtype), rows, columns
    lines = [f"%one = constant 1.0 : {t}", f"%zero = constant 0.0 : {t}", "%id = builtin.group_id : index"]
    lines += [f"%{x.lower()} = subview %{x}[0:{m}, 0:{q}, %id] : memref<{t}x{m}x{q}>" for x in "PQ"]
    lines += [f"%a = subview %A[0:{q}, 0:{q}, %id] : memref<{t}x{q}x{q}>", f"%t = alloca : memref<{t}x{m}x{q},local>"]
    lines += ["gemm.n.n %one, %p, %a, %zero, %t", "gemm.n.n %one, %K, %t, %one, %q"]
    batches = f"%P: memref<{t}x{m}x{q}x?>, %A: memref<{t}x{q}x{q}x?>, %Q: memref<{t}x{m}x{q}x?>"
    shapes: dict[str, tuple[int | str, ...]]
    shapes = {"K": (m, m), "P": (m, q, "E"), "A": (q, q, "E"), "Q": (m, q, "E")}
    return Case(
        f"chain {m}x{q} {dtype}",
        _function(f"%K: memref<{t}x{m}x{m}>, {batches}", lines),
        dtype,
        shapes,
        "Q",
        {},
        ("lk,eql,epq->epk", ("K", "P", "A"), "v + out"),
        lambda xp, K, P, A, Q: Q + A @ (P @ K),
        {"torch": lambda xp, K, P, A, Q: xp.torch.baddbmm(Q, A, P @ K, out=Q)},
    )


def volume(dtype: str, rows: int = 56, columns: int = 9) -> Case:
    """ADER-DG's volume integral ``Q := Σ_d K_d P A_d + Q``."""
    t, m, q = _type(dtype), rows, columns
    lines = [f"%one = constant 1.0 : {t}", f"%zero = constant 0.0 : {t}", "%id = builtin.group_id : index"]
    lines += [f"%{x.lower()} = subview %{x}[0:{m}, 0:{q}, %id] : memref<{t}x{m}x{q}>" for x in "PQ"]
    for d in range(3):
        lines += [f"%a{d} = subview %A{d}[0:{q}, 0:{q}, %id] : memref<{t}x{q}x{q}>"]
        lines += [f"%t{d} = alloca : memref<{t}x{m}x{q},local>"]
        lines += [f"gemm.n.n %one, %p, %a{d}, %zero, %t{d}", f"gemm.n.n %one, %K{d}, %t{d}, %one, %q"]
    parameters = [f"%K{d}: memref<{t}x{m}x{m}>" for d in range(3)]
    parameters += [f"%A{d}: memref<{t}x{q}x{q}x?>" for d in range(3)]
    parameters += [f"%{x}: memref<{t}x{m}x{q}x?>" for x in "PQ"]
    shapes: dict[str, tuple[int | str, ...]] = {f"K{d}": (m, m) for d in range(3)}
    shapes |= {f"A{d}": (q, q, "E") for d in range(3)} | dict.fromkeys("PQ", (m, q, "E"))

    def compute(xp: Any, P: Any, Q: Any, **x: Any) -> Any:
        return Q + x["A0"] @ (P @ x["K0"]) + x["A1"] @ (P @ x["K1"]) + x["A2"] @ (P @ x["K2"])

    def by_torch(xp: Any, P: Any, Q: Any, **x: Any) -> Any:
        for d in range(3):
            xp.torch.baddbmm(Q, x[f"A{d}"], P @ x[f"K{d}"], out=Q)
        return Q

    name = f"volume {m}x{q} {dtype}"
    return Case(name, _function(", ".join(parameters), lines), dtype, shapes, "Q", {}, None, compute, {"torch": by_torch})


def derivatives(dtype: str, order: int = 5, columns: int = 9) -> Case:
    """ADER-DG's time integral ``I := t_0 D_0 + Σ_j t_j D_j`` with ``D_j = Σ_d K_d D_{j-1} A_d`` of fewer and fewer rows."""
    t, q = _type(dtype), columns
    rows = [comb(order - j + 2, 3) for j in range(order)]
    m = rows[0]
    lines = [f"%one = constant 1.0 : {t}", f"%zero = constant 0.0 : {t}", "%id = builtin.group_id : index"]
    lines += [f"%{x} = subview %{x.upper()}[0:{m}, 0:{q}, %id] : memref<{t}x{m}x{q}>" for x in "qi"]
    lines += [f"%a{d} = subview %A{d}[0:{q}, 0:{q}, %id] : memref<{t}x{q}x{q}>" for d in range(3)]
    lines += ["axpby.n %t0, %q, %zero, %i"]
    before = "%q"
    for j in range(1, order):
        above, here = rows[j - 1], rows[j]
        lines += [f"%d{j} = alloca : memref<{t}x{here}x{q},local>"]
        for d in range(3):
            strides = f",strided<1,{m}>" if here < m else ""
            lines += [f"%k{j}{d} = subview %K{d}[0:{here}, 0:{above}] : memref<{t}x{here}x{above}{strides}>"]
            lines += [f"%s{j}{d} = alloca : memref<{t}x{here}x{q},local>"]
            lines += [f"gemm.n.n %one, %k{j}{d}, {before}, %zero, %s{j}{d}"]
            lines += [f"gemm.n.n %one, %s{j}{d}, %a{d}, %{'one' if d else 'zero'}, %d{j}"]
        lines += [f"%i{j} = subview %i[0:{here}, 0:{q}] : memref<{t}x{here}x{q},strided<1,{m}>>"]
        lines += [f"axpby.n %t{j}, %d{j}, %one, %i{j}"]
        before = f"%d{j}"
    parameters = [f"%K{d}: memref<{t}x{m}x{m}>" for d in range(3)]
    parameters += [f"%A{d}: memref<{t}x{q}x{q}x?>" for d in range(3)]
    parameters += [f"%{x}: memref<{t}x{m}x{q}x?>" for x in "QI"] + [f"%t{j}: {t}" for j in range(order)]
    shapes: dict[str, tuple[int | str, ...]] = {f"K{d}": (m, m) for d in range(3)}
    shapes |= {f"A{d}": (q, q, "E") for d in range(3)} | dict.fromkeys("QI", (m, q, "E"))
    numbers = {f"t{j}": 1 / (j + 1) ** 2 for j in range(order)}

    def compute(xp: Any, Q: Any, **x: Any) -> Any:
        last, result = Q, numbers["t0"] * Q
        for j in range(1, order):
            above, here = rows[j - 1], rows[j]
            parts = [x[f"A{d}"] @ (last @ x[f"K{d}"][:above, :here]) for d in range(3)]
            last = parts[0] + parts[1] + parts[2]
            part = numbers[f"t{j}"] * last
            if hasattr(result, "at"):
                result = result.at[..., :here].add(part)
            else:
                result[..., :here] += part
        return result

    name = f"derivatives {m}x{q} {dtype}"
    return Case(name, _function(", ".join(parameters), lines), dtype, shapes, "I", numbers, None, compute)


def _type(dtype: str) -> str:
    return {"float32": "f32", "float64": "f64"}[dtype]


def _function(parameters: str, lines: list[str]) -> str:
    return "\n".join([f"func @case({parameters}) {{", *(f"    {line}" for line in lines), "}", ""])


def cases() -> tuple[Case, ...]:
    """All of them."""
    types = ("float32", "float64")
    products = [gemm(n, dtype, beta) for n in (4, 8, 16, 32, 64) for dtype in types for beta in (0, 1)]
    unknown = [unknown_gemm(n, dtype) for n in (16, 64) for dtype in types]
    programs = [make(dtype) for make in (chain, volume, derivatives) for dtype in types]
    return (*products, *unknown, *programs)


def ours(case: Case, given: Mapping[str, Any], device: fe.Device) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Both routes and `generate`, on arrays of the device."""
    for route in ("general", "einsum"):
        with suppress(fe.errors.FeinsumError):
            yield route, partial(fe.build(fe.program(case.text), device=device, route=route), **given, **case.numbers)
    if device.profile.matrix_units:
        program = fe.program(case.text)
        function = program.function()
        target = replace(choose_target(function, device.profile), units=())
        items = GeneralKernel(function, program.source, device, target=target)
        yield "items", lambda: items.call(ProgramCall({**given, **case.numbers}))
    if case.einsum is not None:
        subscripts, operands, epilogue = case.einsum
        described = [fe.array(name, tuple(reversed(case.shapes[name])), case.dtype) for name in operands]
        e = fe.einsum(subscripts, *described)
        kernel = fe.generate(e.then(epilogue) if epilogue else e, device)
        inputs = {name: given[name].T for name in operands}
        yield "generate", partial(kernel, inputs, out=given[case.output].T, queue=device.queue)


class Tensor(Contest):
    command = "tensor"
    peers = {"cpu": ("torch", "jax", "numpy"), "gpu": ("torch", "jax", "cupy")}  # noqa: RUF012 (a constant of the class)
    more = {"mib": {"type": float, "default": 64.0, "help": "of what a case's instances read and write"}}  # noqa: RUF012

    def cases(self) -> tuple[Case, ...]:
        return cases()

    def samplers(self, case: Case) -> dict[str, Sampler]:
        """What times each way once, after each has been found right."""
        import pyopencl.array as cla

        arrays = case.arrays(max(int(self.options.mib * 2**20) // case.instance_bytes, 1))
        batches = {name: value.T for name, value in arrays.items()}
        exact = {name: value[:PERIOD].astype("float64") for name, value in batches.items()}
        expected = case.compute(SimpleNamespace(), **exact)

        def is_right(output: Values) -> bool:
            wanted = np.resize(expected, output.shape)
            ends = (slice(PERIOD), slice(-PERIOD, None))
            error = max(float(np.abs(output[part] - wanted[part]).max()) for part in ends) / np.abs(expected).max()
            return bool(error <= 1e3 * np.finfo(case.dtype).eps)

        given = {name: cla.to_device(self.device.queue, value) for name, value in arrays.items()}
        made: dict[str, Sampler] = {}
        for name, run in ours(case, given, self.device):
            given[case.output].set(arrays[case.output], self.device.queue)  # every way begins with the same output
            run()
            if not is_right(given[case.output].get(self.device.queue).T):
                raise ValueError(f"{case.name}: {name} is wrong")
            made[name] = self.timed(run)
        return made | self.beside(Work(batches, case.compute, case.output, case.special), is_right)

    def told(self, case: Case, race: Race, seconds: Mapping[str, float]) -> dict[str, Any]:
        """How many times as fast the first of two ways is as the second."""
        peer = min((name for name in race.names if name not in OURS), key=seconds.__getitem__, default="")
        best = min((name for name in OURS if name in seconds), key=seconds.__getitem__)
        pairs = {
            "best of ours / torch": (best, "torch"),
            "general / peer": ("general", peer),
            "einsum / peer": ("einsum", peer),
            "general / einsum": ("general", "einsum"),
            "einsum / generate": ("einsum", "generate"),
        }
        known = {name: race.compare(*pair).ratio if {*pair} <= seconds.keys() else None for name, pair in pairs.items()}
        return {"best_peer": peer, "ratios": known}


main = Tensor.main
