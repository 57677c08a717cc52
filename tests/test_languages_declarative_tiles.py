"""Grids as tiles of work-groups, of any size, for any division of the work."""

from __future__ import annotations

import declarative_programs as programs
import numpy as np
import pytest

import feinsum as fe
from feinsum.devices import Device
from feinsum.errors import DeviceError
from feinsum.languages.declarative.emitting.kernels import Spread
from feinsum.languages.declarative.running import builder

VECTORS = Spread(1, 2, tree=False, vector_bytes=64)
CARDS = Spread(64, 2, tree=True)


def tiled(n: int, k: int, m: int) -> str:
    """The matrix product of the document with given tiles."""
    text = programs.TILED
    for name, length, tile in (("n", "N", n), ("k", "K", k), ("m", "M", m)):
        text = text.replace(f"tile_{name} = tune({length})", f"tile_{name} = tune({length}, [{tile}])")
    return text


@pytest.mark.parametrize(
    ("spread", "tiles", "lengths", "dtype"),
    [
        (VECTORS, (16, 8, 32), (37, 19, 75), "float32"),  # beyond every edge
        (VECTORS, (8, 16, 16), (32, 32, 48), "float64"),  # no edge at all
        (VECTORS, (6, 7, 10), (13, 7, 41), "float32"),  # vectors of two, rows by sixes
        (VECTORS, (5, 3, 7), (11, 10, 9), "float64"),  # no vectors
        (CARDS, (16, 8, 32), (37, 19, 75), "float64"),
        (CARDS, (64, 4, 80), (70, 5, 90), "float32"),  # four rows and five columns of a work-item
        (CARDS, (5, 3, 7), (11, 10, 9), "float32"),
        (Spread(1, 2, tree=False), (16, 8, 32), (37, 19, 75), "float32"),  # element by element
    ],
)
def test_products_of_tiles(
    spread: Spread,
    tiles: tuple[int, int, int],
    lengths: tuple[int, int, int],
    dtype: str,
    cpu: Device,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of any size, in vectors, by work-items with blocks of their own, and element by element."""
    monkeypatch.setattr(builder, "spread_of", lambda profile: spread)
    n, k, m = lengths
    rng = np.random.default_rng(5)
    A, B = rng.standard_normal((n, k)).astype(dtype), rng.standard_normal((k, m)).astype(dtype)
    kernel = fe.build(fe.program(tiled(*tiles), language="declarative"), device=cpu)
    np.testing.assert_allclose(kernel(A=A, B=B), A @ B, atol=1e-4 if dtype == "float32" else 1e-12)
    assert f"a work-group for each tile of {tiles[0]}x{tiles[2]}" in kernel.explain()
    assert "row_block_a" in kernel.source, "tiles are staged in local memory"


GRIDS = {
    "rows beside their greatest": """
x: Tensor<N, M; f32>
t = tune(N, [4])
y: Tensor<N, M; f32> = grid (dim = [cdiv(N, t)]) |g| {
    rows = compute (shape = [t, M]) |i, j| if i + g * t < N then x[i + g * t, j] else 0
    most = compute (shape = [t]) |i| reduce (shape = [M], op = max) |j| rows[i, j]
    compute (shape = [t, M]) |i, j| rows[i, j] - most[i]
}
""",
    "a loop that doubles and adds": """
x: Tensor<N; f32>
t = tune(N, [16])
y: Tensor<N; f32> = grid (dim = [cdiv(N, t)]) |g| {
    first = compute (shape = [t]) |i| if i + g * t < N then x[i + g * t] else 0
    last = affine_for (end = 3, init = zeros([t])) |k, s| {
        step = compute (shape = [t]) |i| reduce (shape = [2], op = sum) |j| first[(i + j) % t] * (k + 1)
        s * 2 + step
    }
    compute (shape = [t]) |i| last[i] / 4 + first[i]
}
""",
    "a stack": """
x: Tensor<B, N, M; f32>
y: Tensor<B, N, M; f32> = grid (dim = [B]) |b| {
    all = compute (shape = [1, N, M]) |z, i, j| x[b, i, j]
    affine_for (end = 2, init = zeros([1, N, M])) |k, s| {
        s + compute (shape = [1, N, M]) |z, i, j| reduce (shape = [M], op = sum) |u| all[0, i, u] * all[0, i, j]
    }
}
""",
}


@pytest.mark.parametrize("spread", [VECTORS, CARDS])
@pytest.mark.parametrize("name", GRIDS)
def test_other_grids(name: str, spread: Spread, cpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the interpreter."""
    monkeypatch.setattr(builder, "spread_of", lambda profile: spread)
    program = fe.program(GRIDS[name], language="declarative")
    shape = (3, 5, 8) if name == "a stack" else (10, 24) if "N, M" in GRIDS[name] else (37,)
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    kernel = fe.build(program, device=cpu)
    np.testing.assert_allclose(kernel(x=x), program.interpret(x=x), atol=1e-4)
    assert "a work-group for each tile" in kernel.explain()


def test_a_loop_that_takes_its_neighbours_has_no_tile(cpu: Device) -> None:
    """What a loop carries is in registers, which nobody else reads: such a grid is computed element by element."""
    program = fe.program(
        """
x: Tensor<N; f32>
y: Tensor<N; f32> = grid (dim = [cdiv(N, 4)]) |g| {
    first = compute (shape = [4]) |i| if i + g * 4 < N then x[i + g * 4] else 0
    affine_for (end = 3, init = first) |k, s| compute (shape = [4]) |i| s[3 - i] + first[i]
}
""",
        language="declarative",
    )
    x = np.arange(10, dtype=np.float32)
    kernel = fe.build(program, device=cpu)
    np.testing.assert_allclose(kernel(x=x), program.interpret(x=x))
    assert "a work-item for each element" in kernel.explain()


def test_tiles_that_do_not_fit_are_refused(cpu: Device) -> None:
    """With what they take, and what there is."""
    A, B = np.ones((64, 1024), np.float32), np.ones((1024, 64), np.float32)
    with pytest.raises(DeviceError, match=r"tiles take 524288 bytes of local memory; a work-group of .* has \d+"):
        fe.build(fe.program(tiled(64, 1024, 64), language="declarative"), device=cpu)(A=A, B=B)
