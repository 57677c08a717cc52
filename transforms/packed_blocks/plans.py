"""Plans of packed blocks for configurations: the size of blocks, and refusals where a device has no room for them."""

from __future__ import annotations

from functools import lru_cache

from feinsum.devices import DeviceProfile
from feinsum.einsum import BatchedEinsum
from feinsum.errors import TransformError
from feinsum.skeletons.packed_blocks import MicroTile, PackedBlocks
from feinsum.space import Configuration, Problem

from .products import FusedMatrices

_UNROLLED = (4, 2)
"""Terms of a sum that are written out, the best guess first; chosen by hand."""


def packed_plan(p: Problem, c: Configuration) -> PackedBlocks:
    """The plan of a configuration of :mod:`feinsum.transforms.packed_blocks.contractions`.

    :raises TransformError: if the device has no vectors, or too few registers; with the reason.
    """
    if not p.device.simd_bytes:
        raise TransformError("the device has no vector registers")
    own, tile = product_of(p), MicroTile.parse(c["tile"])
    if tile.registers > p.device.vectors:
        raise TransformError(f"a register tile of {tile} takes {tile.registers} registers of {p.device.vectors}")
    for name, letters in own.letters.items():
        if sum(map(own.problem.is_long, letters)) > 1:
            raise TransformError(f"several indices of unknown length among the {name}")
    terms = own.count("sums")
    unrolled = next((n for n in _UNROLLED if terms % n == 0 or terms > c["depth"] // 2), 1)
    depth = even(terms, c["depth"], unrolled)
    most = p.device.own_cache_bytes // (c["share"] * depth * p.itemsize)
    sizes = (tile.rows, tile.vectors * c["width"])
    rows, columns = (even(own.count(x), most, of) for x, of in zip(("rows", "columns"), sizes, strict=True))
    return PackedBlocks(
        operands=own.operands,
        rows=own.letters["rows"],
        columns=own.letters["columns"],
        sums=own.letters["sums"],
        batch=own.letters["batch"],
        width=c["width"],
        tile=tile,
        block=(rows, columns),
        depth=depth,
        runs=own.runs,
        unrolled=unrolled,
        joined=own.joined,
        itemsize=p.itemsize,
    )


def even(length: int, most: int, of: int) -> int:
    """At most so many, or one of `of`, in as few parts as that takes, which are whole numbers of `of` and about equal."""
    whole = -(-length // of)
    parts = -(-whole // max(1, most // of))
    return of * -(-whole // parts)


def product_of(p: Problem) -> FusedMatrices:
    """A problem as a product of matrices."""
    return _product_of(p.einsum, tuple(p.sizes.items()), p.device)


@lru_cache(maxsize=256)
def _product_of(e: BatchedEinsum, sizes: tuple[tuple[str, int], ...], device: DeviceProfile) -> FusedMatrices:
    """Asked for with every configuration."""
    return FusedMatrices.of(Problem(e, dict(sizes), device))
