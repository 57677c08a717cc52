"""``python -m benchmarks tensor``: programs of the tensor language by both routes, compared with peers.

For each case the *general* route, the *einsum* route and the einsum that a user of :func:`feinsum.generate` would write are
timed alternately with torch, JAX and numpy, or CuPy on a GPU, where these are installed.  The results of each are compared
with numpy before it is timed.  On a device with matrix units the general route is timed without them too, as *items*.

All arrays of a case are listed as the program has them, column-major; peers get the same memory as C-contiguous batches,
so that ``C = A B`` of the program is ``c = b @ a`` of theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from math import comb
from types import SimpleNamespace
from typing import Any

import numpy as np

import feinsum as fe
from benchmarks.engines.problem import Values
from benchmarks.measure import Comparison, Sampler
from benchmarks.peers.base import Work
from feinsum.languages.calling.protocols import ProgramCall
from feinsum.languages.tensor.lowering.target import choose_target
from feinsum.languages.tensor.running.kernel_route import GeneralKernel
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


Shapes = Mapping[str, tuple[int | str, ...]]


def _type(dtype: str, shape: tuple[int | str, ...], more: str = "") -> str:
    """The type of an array, ``memref<f32x4x4x?>``."""
    element = {"float32": "f32", "float64": "f64"}[dtype]
    return f"memref<{element}x{'x'.join('?' if n == 'E' else str(n) for n in shape)}{more}>"


def _program(dtype: str, shapes: Shapes, lines: Sequence[str], numbers: Iterable[str] = ()) -> str:
    """A function of arrays, each of whose instances is called by its name in small letters.

    :param numbers: the names of scalars, which are arguments, too.
    """
    element = {"float32": "f32", "float64": "f64"}[dtype]
    parameters = [f"%{x}: {_type(dtype, shape)}" for x, shape in shapes.items()]
    parameters += [f"%{x}: {element}" for x in numbers]
    before = [f"%{x} = constant {value} : {element}" for x, value in (("one", "1.0"), ("zero", "0.0"))]
    before += ["%id = builtin.group_id : index"]
    for x, (*own, last) in shapes.items():
        if last == "E" and "?" not in own:
            at = ", ".join(f"0:{n}" for n in own)
            before += [f"%{x.lower()} = subview %{x}[{at}, %id] : {_type(dtype, tuple(own))}"]
    body = "".join(f"    {line}\n" for line in (*before, *lines))
    return f"func @case({', '.join(parameters)}) {{\n{body}}}\n"


def gemm(n: int, dtype: str, beta: int) -> Case:
    """``C := A B + β C`` for a batch of square matrices."""
    shapes: Shapes = dict.fromkeys("ABC", (n, n, "E"))
    text = _program(dtype, shapes, [f"gemm.n.n %one, %a, %b, %{'one' if beta else 'zero'}, %c"])

    def compute(xp: Any, A: Any, B: Any, C: Any) -> Any:
        return B @ A + C if beta else B @ A

    def by_torch(xp: Any, A: Any, B: Any, C: Any) -> Any:
        return xp.torch.baddbmm(C, B, A, out=C) if beta else xp.torch.bmm(B, A, out=C)

    special = {"torch": by_torch} | ({} if beta else {"numpy": lambda xp, A, B, C: np.matmul(B, A, out=C)})
    einsum = "enk,ekm->enm", ("B", "A"), "v + out" if beta else ""
    return Case(f"gemm {n}^3 {dtype} beta {beta}", text, dtype, shapes, "C", {}, einsum, compute, special)


def unknown_gemm(n: int, dtype: str) -> Case:
    """``C := A B + C`` for a batch of matrices whose sizes the program leaves open; they are square in the call."""
    lines = []
    for x in "ABC":
        lines += [f"%rows{x} = size %{x}[0] : index", f"%columns{x} = size %{x}[1] : index"]
        view = _type(dtype, ("?", "?"), ",strided<1,?>")
        lines += [f"%{x.lower()} = subview %{x}[0:%rows{x}, 0:%columns{x}, %id] : {view}"]
    text = _program(dtype, dict.fromkeys("ABC", ("?", "?", "E")), [*lines, "gemm.n.n %one, %a, %b, %one, %c"])
    return replace(gemm(n, dtype, 1), name=f"gemm ? {n}^3 {dtype}", text=text, einsum=None)


def chain(dtype: str, m: int = 56, q: int = 9) -> Case:
    """``Q := K P A + Q``, of which K is the same for all."""
    shapes: Shapes = {"K": (m, m), "P": (m, q, "E"), "A": (q, q, "E"), "Q": (m, q, "E")}
    lines = [f"%t = alloca : {_type(dtype, (m, q), ',local')}"]
    lines += ["gemm.n.n %one, %p, %a, %zero, %t", "gemm.n.n %one, %K, %t, %one, %q"]
    return Case(
        f"chain {m}x{q} {dtype}",
        _program(dtype, shapes, lines),
        dtype,
        shapes,
        "Q",
        {},
        ("lk,eql,epq->epk", ("K", "P", "A"), "v + out"),
        lambda xp, K, P, A, Q: Q + A @ (P @ K),
        {"torch": lambda xp, K, P, A, Q: xp.torch.baddbmm(Q, A, P @ K, out=Q)},
    )


def _of_three(m: int, q: int, batches: str) -> dict[str, tuple[int | str, ...]]:
    """The shapes of three operators of all elements, three matrices of each, and what has the shape of the unknowns."""
    shared: dict[str, tuple[int | str, ...]] = {f"K{d}": (m, m) for d in range(3)}
    return shared | {f"A{d}": (q, q, "E") for d in range(3)} | dict.fromkeys(batches, (m, q, "E"))


def volume(dtype: str, m: int = 56, q: int = 9) -> Case:
    """ADER-DG's volume integral ``Q := Σ_d K_d P A_d + Q``."""
    lines = []
    for d in range(3):
        lines += [f"%t{d} = alloca : {_type(dtype, (m, q), ',local')}"]
        lines += [f"gemm.n.n %one, %p, %a{d}, %zero, %t{d}", f"gemm.n.n %one, %K{d}, %t{d}, %one, %q"]
    shapes = _of_three(m, q, "PQ")

    def compute(xp: Any, P: Any, Q: Any, **x: Any) -> Any:
        return Q + x["A0"] @ (P @ x["K0"]) + x["A1"] @ (P @ x["K1"]) + x["A2"] @ (P @ x["K2"])

    def by_torch(xp: Any, P: Any, Q: Any, **x: Any) -> Any:
        for d in range(3):
            xp.torch.baddbmm(Q, x[f"A{d}"], P @ x[f"K{d}"], out=Q)
        return Q

    text = _program(dtype, shapes, lines)
    return Case(f"volume {m}x{q} {dtype}", text, dtype, shapes, "Q", {}, None, compute, {"torch": by_torch})


def derivatives(dtype: str, order: int = 5, q: int = 9) -> Case:
    """ADER-DG's time integral ``I := t_0 D_0 + Σ_j t_j D_j`` with ``D_j = Σ_d K_d D_{j-1} A_d`` of fewer and fewer rows."""
    rows = [comb(order - j + 2, 3) for j in range(order)]
    m = rows[0]
    lines, before = ["axpby.n %t0, %q, %zero, %i"], "%q"
    for j in range(1, order):
        above, here = rows[j - 1], rows[j]
        local = _type(dtype, (here, q), ",local")
        lines += [f"%d{j} = alloca : {local}"]
        for d in range(3):
            view = _type(dtype, (here, above), f",strided<1,{m}>" if here < m else "")
            lines += [f"%k{j}{d} = subview %K{d}[0:{here}, 0:{above}] : {view}", f"%s{j}{d} = alloca : {local}"]
            lines += [f"gemm.n.n %one, %k{j}{d}, {before}, %zero, %s{j}{d}"]
            lines += [f"gemm.n.n %one, %s{j}{d}, %a{d}, %{'one' if d else 'zero'}, %d{j}"]
        lines += [f"%i{j} = subview %i[0:{here}, 0:{q}] : {_type(dtype, (here, q), f',strided<1,{m}>')}"]
        lines += [f"axpby.n %t{j}, %d{j}, %one, %i{j}"]
        before = f"%d{j}"
    shapes, numbers = _of_three(m, q, "QI"), {f"t{j}": 1 / (j + 1) ** 2 for j in range(order)}

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

    text = _program(dtype, shapes, lines, numbers)
    return Case(f"derivatives {m}x{q} {dtype}", text, dtype, shapes, "I", numbers, None, compute)


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


class Tensor(Comparison):
    command = "tensor"
    peers = {"cpu": ("torch", "jax", "numpy"), "gpu": ("torch", "jax", "cupy")}  # noqa: RUF012 (a constant of the class)
    more = {"mib": {"type": float, "default": 64.0, "help": "of what a case's instances read and write"}}  # noqa: RUF012

    def cases(self) -> tuple[Case, ...]:
        return cases()

    def samplers(self, case: Case) -> dict[str, Sampler]:
        """The functions that time each way once, after its results were found right."""
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
