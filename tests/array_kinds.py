"""Kinds of arrays that programs are called with: libraries, orders, gaps, alignments and promises, made of numpy arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyopencl.array as cla
from hypothesis import strategies as st


def in_order_f(value: Any) -> Any:
    return np.array(value, order="F")


def with_gaps(value: Any) -> Any:
    """Every other element of each axis of a larger array."""
    whole = np.full([2 * n + 1 for n in value.shape], value.dtype.type(77), value.dtype)
    found = whole[tuple(slice(1, None, 2) for _ in value.shape)]
    found[...] = value
    return found


def backwards(value: Any) -> Any:
    """The same elements by negative strides."""
    turn = tuple(slice(None, None, -1) for _ in value.shape)
    return value[turn].copy()[turn]


def misaligned(value: Any) -> Any:
    """Where no number of its type may lie."""
    raw = np.zeros(value.nbytes + 1, np.uint8)
    found = raw[1:].view(value.dtype).reshape(value.shape)
    found[...] = value
    return found


def read_only(value: Any) -> Any:
    found = value.copy()
    found.flags.writeable = False
    return found


class Speaker:
    """An array of a library that is known for nothing but DLPack."""

    def __init__(self, value: Any) -> None:
        self.value = value

    shape = property(lambda self: self.value.shape)
    dtype = property(lambda self: self.value.dtype)

    def __dlpack__(self, **keywords: Any) -> Any:
        return self.value.__dlpack__(**keywords)

    def __dlpack_device__(self) -> Any:
        return self.value.__dlpack_device__()

    def __array_namespace__(self, api_version: str | None = None) -> Any:
        return type("xp", (), {"from_dlpack": staticmethod(lambda x: Speaker(np.from_dlpack(x)))})


def of_torch(value: Any) -> Any:
    import torch

    return torch.from_numpy(value.copy())


def of_torch_transposed(value: Any) -> Any:
    import torch

    return torch.from_numpy(value.T.copy()).permute(tuple(reversed(range(value.ndim))))


def of_jax(value: Any) -> Any:
    import jax

    return jax.numpy.asarray(value)


ON_HOST: Mapping[str, Callable[[Any], Any]] = {
    "order C": np.copy, "order F": in_order_f, "gaps": with_gaps, "backwards": backwards, "misaligned": misaligned,
}  # fmt: skip
"""Arrays of numpy that may be written."""
OF_OTHERS: Mapping[str, Callable[[Any], Any]] = {
    "torch": of_torch, "torch transposed": of_torch_transposed, "DLPack": lambda value: Speaker(value.copy()),
}  # fmt: skip
"""Arrays of other libraries that may be written."""
FIXED: Mapping[str, Callable[[Any], Any]] = {"read-only": read_only, "jax": of_jax}
LIBRARIES = {
    "numpy": (*ON_HOST, "read-only"), "torch": ("torch", "torch transposed"), "jax": ("jax",), "DLPack": ("DLPack",),
    "pyopencl": ("device C", "device F", "device gaps"),
}  # fmt: skip
"""Kinds that go together in a call."""
KINDS = {name: library for library, names in LIBRARIES.items() for name in names}


def make(kind: str, value: Any, queue: Any) -> Any:
    """An array of a kind with the elements of one of numpy; of one without axes only the library differs."""
    if not value.ndim:
        kind = "device C" if kind.startswith("device") else "order C" if kind in ON_HOST else kind
    if not kind.startswith("device"):
        return {**ON_HOST, **OF_OTHERS, **FIXED}[kind](value)
    if kind == "device gaps":
        whole = cla.to_device(queue, with_gaps(value).base)
        return whole[tuple(slice(1, None, 2) for _ in value.shape)] if value.ndim else cla.to_device(queue, value)
    return cla.to_device(queue, np.array(value, order=kind[-1]))


def made(draw: Callable[[st.SearchStrategy[str]], str], libraries: Sequence[str], value: Any, queue: Any) -> Any:
    """An array of a kind that is drawn, of one of these libraries; each array of a list; anything else as it is."""
    if isinstance(value, list):
        return [made(draw, libraries, one, queue) for one in value]
    kinds = [kind for library in libraries for kind in LIBRARIES[library] if kind != "read-only"]
    return make(draw(st.sampled_from(kinds)), value, queue) if isinstance(value, np.ndarray) else value


def shown(value: Any) -> Any:
    """The elements of an array of any kind as one of numpy."""
    if isinstance(value, Speaker):
        return value.value
    if isinstance(value, cla.Array):
        from feinsum.compile.buffers import device_elements

        return device_elements(value, value.queue)
    return np.asarray(value)


def library_of(value: Any) -> str:
    """The library of an array, as in :data:`LIBRARIES`."""
    if isinstance(value, Speaker):
        return "DLPack"
    package = type(value).__module__.partition(".")[0]
    return "jax" if package.startswith("jax") else package
