"""``python -m benchmarks forms``: kernels in the style of a form compiler, as given and with their einsums transformed.

Each kernel gets a loop over cells (``fe.add_loop``).  *Given* is what loopy makes of that; *transformed* has its sums
transformed (``fe.extract_operands``, ``fe.transform``) and what is left spread over the device (``fe.spread_loops``).  Both
are called in turns, by loopy's executor with arrays on the device and a pool for temporaries, and once more as bare
launches with buffers that are there.  Results are compared before.

The kernels are for one cell: sequential, with scalar and local temporaries and flat indices.  They are written as TSFC,
the form compiler of Firedrake, writes its own (Homolya, Mitchell, Luporini and Ham, TSFC: a structure-preserving form
compiler, 2018): the geometry from coordinates in scalars ``t0, t1, ...``, tables of weights and basis functions as
constants, one loop over points of the quadrature, and ``A[..] = A[..] + ..`` in the innermost loop; on hexahedra one sum
for each direction, with local arrays in between.  Tables hold random numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import loopy as lp
import numpy as np

import feinsum as fe
from benchmarks.measure import Comparison, Sampler, Way
from feinsum.compile.codegen import generate_program
from feinsum.compile.executable import build_executable
from feinsum.timing.races import Race

NODES = {("triangle", 1): 3, ("triangle", 2): 6, ("triangle", 3): 10, ("tetrahedron", 1): 4, ("tetrahedron", 2): 10,
         ("tetrahedron", 3): 20}  # fmt: skip
POINTS = {("triangle", 1): 3, ("triangle", 2): 6, ("triangle", 3): 12, ("tetrahedron", 1): 4, ("tetrahedron", 2): 14,
          ("tetrahedron", 3): 24}  # fmt: skip

SIMPLICES = [
    (cell, form, order)
    for cell, form, orders in (
        ("tetrahedron", "mass", (1, 2, 3)),
        ("tetrahedron", "laplace", (1, 2)),
        ("tetrahedron", "mass action", (1, 2, 3)),
        ("tetrahedron", "laplace action", (1, 2)),
        ("tetrahedron", "load", (1, 3)),
        ("triangle", "mass", (1, 2)),
        ("triangle", "laplace", (1, 2)),
        ("triangle", "mass action", (3,)),
        ("triangle", "laplace action", (2,)),
        ("triangle", "load", (2,)),
    )
    for order in orders
]
HEXAHEDRA = [
    ("hexahedron", form, order)
    for form, orders in (("mass action", (1, 2, 3)), ("laplace action", (1, 2)), ("mass", (1,)), ("load", (2,)))
    for order in orders
]
FORMS = SIMPLICES + HEXAHEDRA
"""What the tests have: 26 pairs of a cell and a form, and an order."""


@dataclass
class Writer:
    """Lines of a kernel, with names for temporaries as they come.

    :ivar tables: constants by name.
    """

    lines: list[str]
    tables: dict[str, np.ndarray]
    temporaries: dict[str, tuple[int, ...]]

    def table(self, *shape: int) -> str:
        """A table of random numbers."""
        name = f"t{len(self.tables) + len(self.temporaries)}"
        self.tables[name] = np.random.default_rng(len(self.tables)).uniform(0.1, 1, shape)
        return name

    def temporary(self, *shape: int) -> str:
        name = f"t{len(self.tables) + len(self.temporaries)}"
        self.temporaries[name] = shape
        return name

    def let(self, value: str) -> str:
        """A scalar with a value."""
        name = self.temporary()
        self.lines.append(f"{name} = {value}")
        return name

    def loops(self, *inames: str) -> None:
        self.lines.extend(f"for {iname}" for iname in inames)

    def end(self, *inames: str) -> None:
        self.lines.extend("end" for _ in inames)


def geometry(w: Writer, d: int) -> tuple[str, list[list[str]]]:
    """The absolute determinant of the Jacobian and its inverse, ``K[r][x]``, of an affine simplex."""
    J = [[w.let(f"(-1)*coords[{x}] + coords[{d * (r + 1) + x}]") for r in range(d)] for x in range(d)]
    cofactors = [[w.let(_cofactor(J, x, r)) for x in range(d)] for r in range(d)]
    determinant = w.let(" + ".join(f"{J[0][r]}*{cofactors[r][0]}" for r in range(d)))
    inverse = [[w.let(f"{cofactors[r][x]} / {determinant}") for x in range(d)] for r in range(d)]
    return w.let(f"abs({determinant})"), inverse


def _cofactor(J: list[list[str]], x: int, r: int) -> str:
    if len(J) == 2:
        return f"{'(-1)*' if (x + r) % 2 else ''}{J[1 - x][1 - r]}"
    (a, b), (c, d) = (((x + 1) % 3, (x + 2) % 3), ((r + 1) % 3, (r + 2) % 3))
    return f"{J[a][c]}*{J[b][d]} + (-1)*{J[a][d]}*{J[b][c]}"


def write_simplex(w: Writer, cell: str, form: str, order: int) -> None:
    """A form on affine simplices."""
    n, q, d = NODES[cell, order], POINTS[cell, order], 2 if cell == "triangle" else 3
    determinant, inverse = geometry(w, d)
    weights, basis = w.table(q), w.table(q, n)
    derivatives = [w.table(q, n) for _ in range(d)] if "laplace" in form else []
    w.loops("ip")
    scale = w.let(f"{weights}[ip]*{determinant}")
    if form == "mass":
        w.loops("j")
        first = w.let(f"{basis}[ip, j]*{scale}")
        w.loops("k")
        w.lines.append(f"A[0 + j*1, 0 + k*1] = A[0 + j*1, 0 + k*1] + {first}*{basis}[ip, k]")
        w.end("j", "k", "ip")
    elif form == "laplace":
        gradients = [w.temporary(n) for _ in range(d)]
        w.loops("k0")
        for x in range(d):
            w.lines.append(f"{gradients[x]}[k0] = {_gradient(inverse, derivatives, x, 'k0')}")
        w.end("k0")
        w.loops("j")
        tests = [w.let(f"({_gradient(inverse, derivatives, x, 'j')})*{scale}") for x in range(d)]
        w.loops("k")
        total = " + ".join(f"{tests[x]}*{gradients[x]}[k]" for x in range(d))
        w.lines.append(f"A[0 + j*1, 0 + k*1] = A[0 + j*1, 0 + k*1] + {total}")
        w.end("j", "k", "ip")
    else:
        _write_vector(w, form, scale, basis, derivatives, inverse)


def _gradient(inverse: list[list[str]], derivatives: list[str], x: int, at: str) -> str:
    return " + ".join(f"{inverse[r][x]}*{table}[ip, {at}]" for r, table in enumerate(derivatives))


def _write_vector(w: Writer, form: str, scale: str, basis: str, derivatives: list[str], inverse: list[list[str]]) -> None:
    """An action, or a load whose source is a constant in the cell."""
    values = []
    for table in derivatives or [basis] * (form == "mass action"):
        values.append(w.let("0.0"))
        w.loops(f"r_{table}")
        w.lines.append(f"{values[-1]} = {values[-1]} + {table}[ip, r_{table}]*w_0[0 + r_{table}*1]")
        w.end("r")
    if form == "laplace action":
        d = len(derivatives)
        gradient = [w.let(" + ".join(f"{inverse[r][x]}*{values[r]}" for r in range(d))) for x in range(d)]
        flux = [w.let(f"({' + '.join(f'{inverse[r][x]}*{gradient[x]}' for x in range(d))})*{scale}") for r in range(d)]
        total = " + ".join(f"{table}[ip, j]*{flux[r]}" for r, table in enumerate(derivatives))
    elif form == "mass action":
        total = f"{basis}[ip, j]*{w.let(f'{values[0]}*{scale}')}"
    else:
        total = f"{basis}[ip, j]*{w.let(f'{scale}*c_0[0]')}"
    w.loops("j")
    w.lines.append(f"A[0 + j*1] = A[0 + j*1] + {total}")
    w.end("j", "ip")


def write_hexahedron(w: Writer, form: str, order: int) -> None:
    """A form on hexahedra that are boxes, one sum for each direction."""
    n, q = order + 1, order + 2
    edges = [w.let(f"(-1)*coords[{x}] + coords[{3 * (4 >> x) + x}]") for x in range(3)]
    determinant = w.let(f"abs({edges[0]}*{edges[1]}*{edges[2]})")
    weights, basis, slope = w.table(q), w.table(q, n), w.table(q, n)
    if form == "mass":
        w.loops("p0", "p1", "p2")
        scale = w.let(f"{weights}[p0]*{weights}[p1]*{weights}[p2]*{determinant}")
        rows = "*".join(f"{basis}[p{x}, j{x}]" for x in range(3))
        w.loops("j0", "j1", "j2")
        row = w.let(f"{rows}*{scale}")
        w.loops("k0", "k1", "k2")
        at = f"A[0 + {_flat(['j0', 'j1', 'j2'], n)}, 0 + {_flat(['k0', 'k1', 'k2'], n)}]"
        w.lines.append(f"{at} = {at} + {row}*" + "*".join(f"{basis}[p{x}, k{x}]" for x in range(3)))
        w.end(*"9" * 9)
        return
    for x in range(3) if form == "laplace action" else (None,):
        tables = [slope if axis == x else basis for axis in range(3)]
        coefficient = f"{determinant}" if x is None else w.let(f"{determinant}/({edges[x]}*{edges[x]})")
        source = _interpolate(w, tables, n, q) if "action" in form else None
        _integrate(w, tables, weights, coefficient, source, n, q)


def _flat(inames: Sequence[str], n: int) -> str:
    """The index of three in a flat array."""
    return " + ".join(f"{iname}*{n ** (2 - k)}" for k, iname in enumerate(inames))


def _interpolate(w: Writer, tables: list[str], n: int, q: int) -> str:
    """The values of ``w_0`` at the points, one direction after the other."""
    unique, source = str(len(w.lines)), ""
    for x in range(3):
        made = w.temporary(*[q if axis <= x else n for axis in range(3)])
        inames, summed, at = _direction(x, "qi", unique)
        value = f"{source}[{', '.join(at)}]" if source else f"w_0[{_flat(at, n)}]"
        term = f"{tables[x]}[{inames[x]}, {summed}]*{value}"
        _sum(w, inames, summed, f"{made}[{', '.join(inames)}]", term, is_new=True)
        source = made
    return source


def _integrate(w: Writer, tables: list[str], weights: str, coefficient: str, source: str | None, n: int, q: int) -> None:
    """Add the integrals with each test function, one direction after the other."""
    unique = f"b{len(w.lines)}"
    first = w.temporary(q, q, q)
    inames = [f"q{x}_{unique}" for x in range(3)]
    w.loops(*inames)
    value = f"{source}[{', '.join(inames)}]" if source else "c_0[0]"
    scale = "*".join(f"{weights}[{iname}]" for iname in inames)
    w.lines.append(f"{first}[{', '.join(inames)}] = {scale}*{coefficient}*{value}")
    w.end(*inames)
    for x in range(3):
        inames, summed, at = _direction(x, "iq", unique)
        made = w.temporary(*[n if axis <= x else q for axis in range(3)]) if x < 2 else ""
        target = f"{made}[{', '.join(inames)}]" if made else f"A[0 + {_flat(inames, n)}]"
        _sum(w, inames, summed, target, f"{tables[x]}[{summed}, {inames[x]}]*{first}[{', '.join(at)}]", is_new=x < 2)
        first = made


def _direction(x: int, letters: str, unique: str) -> tuple[list[str], str, list[str]]:
    """Loops over three axes, that of the sum over axis x, and the indices of what is summed.

    :param letters: of axes that are done, up to x, and of the others.
    """
    inames = [f"{letters[axis > x]}{axis}_{x}_{unique}" for axis in range(3)]
    summed = f"{letters[1]}{x}_{x}_{unique}"
    return inames, summed, [summed if axis == x else iname for axis, iname in enumerate(inames)]


def _sum(w: Writer, inames: list[str], summed: str, target: str, term: str, *, is_new: bool) -> None:
    """Add up a term; what is added to is zero before where it is new."""
    w.loops(*inames)
    if is_new:
        w.lines.append(f"{target} = 0.0")
    w.loops(summed)
    w.lines.append(f"{target} = {target} + {term}")
    w.end(*inames, summed)


def form_kernel(cell: str, form: str, order: int) -> lp.TranslationUnit:
    """The kernel of one cell: adds to ``A``; reads ``coords``, ``w_0`` (coefficients) or ``c_0`` (a constant)."""
    w = Writer([], {}, {})
    if cell == "hexahedron":
        write_hexahedron(w, form, order)
    else:
        write_simplex(w, cell, form, order)
    n = (order + 1) ** 3 if cell == "hexahedron" else NODES[cell, order]
    d, corners = {"triangle": (2, 3), "tetrahedron": (3, 4), "hexahedron": (3, 8)}[cell]
    arguments = [
        lp.GlobalArg("A", "float64", shape=(n, n) if form in ("mass", "laplace") else (n,)),
        lp.GlobalArg("coords", "float64", shape=(corners * d,)),
        *([lp.GlobalArg("w_0", "float64", shape=(n,))] if "action" in form else []),
        *([lp.GlobalArg("c_0", "float64", shape=(1,))] if form == "load" else []),
    ]
    local = lp.AddressSpace.LOCAL
    temporaries = [lp.TemporaryVariable(name, "float64", shape=s, address_space=local) for name, s in w.temporaries.items()]
    temporaries += [
        lp.TemporaryVariable(name, "float64", shape=t.shape, initializer=t, read_only=True, address_space=local)
        for name, t in w.tables.items()
    ]
    return lp.make_kernel(
        _domains(w, cell, form, order), "\n".join(w.lines), [*arguments, *temporaries], seq_dependencies=True,
        target=lp.PyOpenCLTarget(), lang_version=(2018, 2), name="form_cell_integral",
    )  # fmt: skip


def _domains(w: Writer, cell: str, form: str, order: int) -> list[str]:
    """A domain for each loop, its length by the first letter: points or functions."""
    n = order + 1 if cell == "hexahedron" else NODES[cell, order]
    q = order + 2 if cell == "hexahedron" else POINTS[cell, order]
    inames = dict.fromkeys(line.split()[1] for line in w.lines if line.startswith("for "))
    points = ("p", "q", "ip")
    return [f"{{[{i}]: 0 <= {i} < {q if i.startswith(points) else n}}}" for i in inames]


def form_data(t_unit: lp.TranslationUnit, cells: int) -> dict[str, Any]:
    """Arrays for a kernel with a loop over cells around it."""
    rng = np.random.default_rng(0)
    kernel = t_unit.default_entrypoint
    shapes = {a.name: [cells if not isinstance(x, int) else x for x in a.shape] for a in kernel.args if hasattr(a, "shape")}
    return {name: rng.uniform(0.5, 2, shape) for name, shape in shapes.items()}


def over_cells(cell: str, form: str, order: int) -> lp.TranslationUnit:
    """The kernel with a loop over cells around it."""
    t_unit = form_kernel(cell, form, order)
    arguments = t_unit.default_entrypoint.arg_dict
    return fe.add_loop(t_unit, "e", "E", [name for name in ("A", "coords", "w_0") if name in arguments])


@dataclass(frozen=True)
class FormCase:
    """A cell, a form and an order, on a device."""

    form: tuple[str, str, int]
    device: fe.Device
    cells: int

    @property
    def name(self) -> str:
        return " ".join(map(str, self.form))

    @cached_property
    def given(self) -> lp.TranslationUnit:
        return over_cells(*self.form)

    @cached_property
    def transformed(self) -> tuple[lp.TranslationUnit, list[str]]:
        """The kernel with its sums transformed and all else spread, and the subscripts of the sums."""
        found = []
        t_unit = fe.extract_operands(self.given, epilogues=True)
        for match in fe.find_einsums(t_unit, epilogues=True):
            if match.einsum.indexing.summed:
                found.append(match.einsum.subscripts)
                chosen = " or ".join(f"id:{insn_id}" for insn_id in match.insn_ids)
                t_unit = fe.transform(t_unit, self.device, insn_match=chosen, sizes={"E": self.cells}, epilogues=True)
        return fe.spread_loops(t_unit, self.device.profile.kind), found

    def called(self, t_unit: lp.TranslationUnit, data: Mapping[str, Any]) -> Way:
        """A call by loopy's executor, with memory for temporaries out of a pool."""
        import pyopencl.array as cla
        from pyopencl.tools import ImmediateAllocator, MemoryPool

        queue = self.device.queue
        executor, pool = t_unit.executor(self.device.context), MemoryPool(ImmediateAllocator(queue))
        arrays = {name: cla.to_device(queue, value) for name, value in data.items()}
        return partial(executor, queue, E=self.cells, allocator=pool, **arrays)

    def launched(self, t_unit: lp.TranslationUnit, data: Mapping[str, Any]) -> Way:
        """The launches alone."""
        import pyopencl as cl

        executable, lengths = build_executable(self.device.context, generate_program(t_unit)), {"E": self.cells}
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        buffers = {name: cl.Buffer(self.device.context, flags, hostbuf=value) for name, value in data.items()}
        buffers |= executable.scratch(self.device.context, lengths)
        return partial(executable.enqueue, self.device.queue, buffers, lengths)

    def check(self, data: Mapping[str, Any]) -> None:
        """Compare the results of both."""
        results = []
        for t_unit in (self.given, self.transformed[0]):
            arrays = {name: value.copy() for name, value in data.items()}
            _, (result,) = t_unit.executor(self.device.context)(self.device.queue, E=self.cells, **arrays)
            results.append(result)
        np.testing.assert_allclose(results[1], results[0], rtol=1e-11, atol=1e-12 * np.abs(results[0]).max())


class Forms(Comparison):
    command = "forms"
    more = {"cells": {"type": int, "default": 20_000, "help": "(default: 20000)"}}  # noqa: RUF012 (a constant of the class)

    def cases(self) -> Iterator[FormCase]:
        return (FormCase(form, self.device, self.options.cells) for form in FORMS)

    def samplers(self, case: FormCase) -> dict[str, Sampler]:
        """The functions that time each way once."""
        data = form_data(case.given, case.cells)
        case.check(data)
        # The given kernel adds to A: numbers stay finite, and no time depends on an earlier call.
        return {
            f"{name}{more}": self.timed(way(t_unit, data))
            for name, t_unit in (("given", case.given), ("transformed", case.transformed[0]))
            for more, way in (("", case.called), (" launches", case.launched))
        }

    def told(self, case: FormCase, race: Race, seconds: Mapping[str, float]) -> dict[str, Any]:
        """How many times as fast the transformed kernel is."""
        named = {"call": "", "launches": " launches"}
        ratios = {name: race.compare("transformed" + more, "given" + more).ratio for name, more in named.items()}
        return {"cells": case.cells, "einsums": " ".join(case.transformed[1]), "ratios": ratios}


main = Forms.main
