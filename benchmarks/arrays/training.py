"""Training steps of layers of tensor networks, compared with torch's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import feinsum as fe
from benchmarks.arrays.side import Side
from benchmarks.measure import Way


@dataclass(frozen=True)
class Layer:
    """An einsum of which every operand is learnt.

    :ivar lengths: of each index.
    """

    name: str
    subscripts: str
    lengths: Mapping[str, int]

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        terms = self.subscripts.partition("->")[0].split(",")
        return [tuple(self.lengths[letter] for letter in term) for term in terms]

    def operands(self, side: Side) -> list[Any]:
        """Random tensors in float32, so that the result has about the size of one."""
        rng = np.random.default_rng(21)
        made = [side.tensor(rng.normal(size=shape).astype("float32")) for shape in self.shapes]
        for one in made[1:]:
            one.div_(one.shape[0] ** 0.5)
        return [one.requires_grad_() for one in made]


def layers(side: Side) -> tuple[Layer, ...]:
    """Those of tensor networks, at sizes of the device."""
    many, long, n = (8192, 256, 16) if side.on_gpu else (256, 64, 8)
    short = dict.fromkeys("abcijk", n)
    return (
        Layer("Tucker of a batch", "nabc,ai,bj,ck->nijk", {"n": many, **short}),
        Layer("Tucker", "abc,ai,bj,ck->ijk", dict.fromkeys("abc", long) | dict.fromkeys("ijk", 32)),
        Layer("MTTKRP", "ijk,jr,kr->ir", {**dict.fromkeys("ijk", long), "r": 32}),
        Layer("CP of a batch", "nabc,ar,br,cr->nr", {"n": many, **short, "r": 32}),
    )


def training(side: Side) -> Iterator[dict[str, Any]]:
    """Forward and backward of each layer, untuned, compared with torch's; then each of its einsums alone."""
    import torch

    for layer in layers(side):
        operands = layer.operands(side)
        cotangent = torch.randn_like(torch.einsum(layer.subscripts, *operands))
        ways = {
            "feinsum.torch.einsum": _step(fe.torch.einsum, layer.subscripts, operands, cotangent),
            "torch.einsum": _step(torch.einsum, layer.subscripts, operands, cotangent),
        }
        ours, theirs = (way() for way in ways.values())
        yield {
            "name": layer.name,
            "einsum": layer.subscripts,
            "sizes": dict(layer.lengths),
            "error": max(_distance(a, b) for a, b in zip(ours, theirs, strict=True)),
            "step": side.compare(ways, side.back_to_back),
            "einsums": [_alone(side, text, shapes) for text, shapes in evaluated(ways["feinsum.torch.einsum"])],
        }


def _step(einsum: Callable[..., Any], subscripts: str, operands: Sequence[Any], cotangent: Any) -> Callable[[], Any]:
    import torch

    return lambda: torch.autograd.grad(einsum(subscripts, *operands), operands, cotangent)


def evaluated(step: Callable[[], Any]) -> list[tuple[str, list[tuple[int, ...]]]]:
    """The einsums that a step consists of, in order: subscripts, and the shapes of operands."""
    from feinsum.interop import torch_operator

    found = []
    evaluate = torch_operator._evaluate_tensors

    def watched(subscripts: str, operands: Sequence[Any]) -> Any:
        found.append((subscripts, [tuple(one.shape) for one in operands]))
        return evaluate(subscripts, operands)

    torch_operator._evaluate_tensors = watched
    try:
        step()
    finally:
        torch_operator._evaluate_tensors = evaluate
    return found


def _distance(found: Any, expected: Any) -> float:
    """Of two tensors, by the largest element of the second."""
    return float((found - expected).abs().max() / expected.abs().max())


def _alone(side: Side, subscripts: str, shapes: Sequence[tuple[int, ...]]) -> dict[str, Any]:
    """One einsum beside torch's, and the kernels that do it."""
    import torch

    rng = np.random.default_rng(21)
    operands = [side.tensor(rng.normal(size=shape).astype("float32")) for shape in shapes]
    expression = fe.contract_expression(subscripts, *shapes, dtype="float32", device=side.device)
    ways: dict[str, Way] = {
        "feinsum": lambda: expression(*operands),
        "torch.einsum": lambda: torch.einsum(subscripts, *operands),
    }
    times = side.compare(ways, side.back_to_back)
    steps = [
        {"einsum": "numpy's BLAS"}
        if kernel is None
        else {"einsum": str(kernel.einsum), "space": kernel.space, "rung": kernel.rung}
        for kernel in expression.kernels
    ]
    return {"subscripts": subscripts, "shapes": shapes, **times, "kernels": steps}
