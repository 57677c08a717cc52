"""Who holds CUDA arrays: torch and CuPy, with their memory, contexts and streams.  Those of others pass through DLPack."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import lru_cache, partial
from typing import Any, Protocol

import numpy as np

from feinsum.errors import DTypeError, ValidationError
from feinsum.interrupts import load


class Holder(Protocol):
    """What is asked of a library that holds CUDA arrays.

    :ivar name: as in ``like=``.
    """

    name: str

    def kind(self, value: Any) -> Any:
        """All that decides how an array is taken, for a dictionary; None where it needs a closer look each time."""

    def numbers(self, value: Any) -> np.dtype[Any]:
        """The type of its numbers.

        :raises DTypeError: if numpy has none such.
        """

    def strides(self, value: Any) -> tuple[int, ...]:
        """In bytes."""

    def pointer(self, value: Any) -> int:
        """Where it begins."""

    def plain(self, label: str, value: Any) -> tuple[Any, str]:
        """An array of which the memory is what it says, and why it was copied for that; empty if it was not.

        :raises ValidationError: if somebody would miss its derivative, or it is sparse.
        """

    def contiguous(self, value: Any, dtype: np.dtype[Any] | None = None, *, copy: bool = False) -> Any:
        """It, or a C-contiguous copy, of another type if one is given; `copy` for one in any case."""

    def permuted(self, value: Any, axes: tuple[int, ...]) -> Any:
        """A view with its axes in another order."""

    def is_array(self, value: Any) -> bool:
        """Whether something is an array of the library."""

    def mark(self, value: Any, alignment: int) -> Any:
        """By which :meth:`match` recognises arrays like this one that begin at a multiple of so many bytes."""

    def match(self, value: Any, mark: Any) -> int | None:
        """The pointer of an array that is like the marked one; None of others, or if anybody would miss its derivative."""

    def is_current(self, device: int) -> bool:
        """Whether a device is the current one."""

    def maker(self, shape: tuple[int, ...], dtype: np.dtype[Any], device: int) -> Callable[[], Any]:
        """What makes arrays as :meth:`empty` does."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any], device: int) -> Any:
        """A new array from the allocator of the library, for the current stream."""

    def number(self, value: Any, dtype: np.dtype[Any], device: int) -> Any:
        """A number as an array without axes."""

    def zero(self, value: Any) -> None:
        """Set it to zero, on the current stream."""

    def stream(self, device: int) -> int:
        """The current stream of a device."""

    def at(self, device: int, stream: int | None) -> AbstractContextManager[Any]:
        """Make a device current, and a stream of it if one is given."""

    def written(self, value: Any) -> None:
        """Tell the library that somebody else wrote to it."""

    def take(self, value: Any) -> Any:
        """An array of another library by DLPack."""

    def adopt(self, value: Any, device: int) -> Any:
        """An array over the memory that a ``__cuda_array_interface__`` describes."""

    def download(self, value: Any) -> np.ndarray[Any, Any]:
        """Its elements, when they are there."""


class TorchHolder:
    """See :class:`Holder`."""

    name = "torch"

    def __init__(self) -> None:
        import torch

        self._torch = torch
        self._tensor, self._parameter = torch.Tensor, torch.nn.Parameter
        self._grad_enabled = torch.is_grad_enabled
        names = (
            "float16 float32 float64 complex64 complex128 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool".split()
        )
        self._numbers = {getattr(torch, name): np.dtype(name) for name in names if hasattr(torch, name)}
        self._types = {own: other for other, own in self._numbers.items()}
        # Triton and torch's own compiler take the stream so; the public way makes an object.
        self._raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)

    def kind(self, value: Any) -> Any:
        """See :meth:`Holder.kind`."""
        if value.requires_grad or value.is_neg() or value.dtype.is_complex or value.layout != self._torch.strided:
            return None
        return value.shape, value.stride(), value.dtype, value.device.index

    def numbers(self, value: Any) -> np.dtype[Any]:
        """See :meth:`Holder.numbers`."""
        try:
            return self._numbers[value.dtype]
        except KeyError:
            raise DTypeError(f"{value.dtype} is no type that kernels compute with; convert it to float32") from None

    def strides(self, value: Any) -> tuple[int, ...]:
        """See :meth:`Holder.strides`."""
        return tuple(step * value.element_size() for step in value.stride())

    def pointer(self, value: Any) -> int:
        """See :meth:`Holder.pointer`."""
        return int(value.data_ptr())

    def plain(self, label: str, value: Any) -> tuple[Any, str]:
        """See :meth:`Holder.plain`."""
        from feinsum.interop.torch_arrays import plain_tensor

        return plain_tensor(label, value)

    def contiguous(self, value: Any, dtype: np.dtype[Any] | None = None, *, copy: bool = False) -> Any:
        """See :meth:`Holder.contiguous`."""
        if dtype is not None:
            value = value.to(self._types[dtype])
        return value.clone(memory_format=self._torch.contiguous_format) if copy else value.contiguous()

    def permuted(self, value: Any, axes: tuple[int, ...]) -> Any:
        """See :meth:`Holder.permuted`."""
        return value.permute(axes)

    def is_array(self, value: Any) -> bool:
        """See :meth:`Holder.is_array`."""
        return isinstance(value, self._tensor)

    def mark(self, value: Any, alignment: int) -> Any:
        """See :meth:`Holder.mark`."""
        return value.shape, value.stride(), value.dtype, value.device, alignment - 1, value.dtype.is_complex

    def match(self, value: Any, mark: Any) -> int | None:
        """See :meth:`Holder.match`."""
        if value.__class__ is not self._tensor and value.__class__ is not self._parameter:
            return None
        shape, strides, dtype, device, below, is_complex = mark
        if (
            value.shape != shape
            or value.dtype is not dtype
            or value.stride() != strides
            or value.device != device
            or value.is_neg()
            or (is_complex and value.is_conj())
            or (value.requires_grad and self._grad_enabled())
        ):
            return None
        pointer: int = value.data_ptr()
        return None if pointer & below else pointer

    def is_current(self, device: int) -> bool:
        """See :meth:`Holder.is_current`."""
        return bool(self._torch.cuda.current_device() == device)

    def maker(self, shape: tuple[int, ...], dtype: np.dtype[Any], device: int) -> Callable[[], Any]:
        """See :meth:`Holder.maker`."""
        where = self._torch.device("cuda", device)
        return partial(self._torch.empty, shape, dtype=self._types[dtype], device=where)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any], device: int) -> Any:
        """See :meth:`Holder.empty`."""
        return self._torch.empty(shape, dtype=self._types[dtype], device=f"cuda:{device}")

    def number(self, value: Any, dtype: np.dtype[Any], device: int) -> Any:
        """See :meth:`Holder.number`."""
        return self._torch.full((), value, dtype=self._types[dtype], device=f"cuda:{device}")

    def zero(self, value: Any) -> None:
        """See :meth:`Holder.zero`."""
        value.zero_()

    def stream(self, device: int) -> int:
        """See :meth:`Holder.stream`."""
        if self._raw_stream is not None:
            return int(self._raw_stream(device))
        return int(self._torch.cuda.current_stream(device).cuda_stream)

    def at(self, device: int, stream: int | None) -> AbstractContextManager[Any]:
        """See :meth:`Holder.at`."""
        cuda = self._torch.cuda
        if stream is not None:
            return cuda.stream(cuda.ExternalStream(stream, device=device))  # type: ignore[no-any-return]
        return nullcontext() if cuda.current_device() == device else cuda.device(device)

    def written(self, value: Any) -> None:
        """See :meth:`Holder.written`."""
        self._torch.autograd.graph.increment_version(value)

    def take(self, value: Any) -> Any:
        """See :meth:`Holder.take`."""
        return self._torch.from_dlpack(value)

    def adopt(self, value: Any, device: int) -> Any:
        """See :meth:`Holder.adopt`."""
        return self._torch.as_tensor(value, device=f"cuda:{device}")

    def download(self, value: Any) -> np.ndarray[Any, Any]:
        """See :meth:`Holder.download`."""
        found: np.ndarray[Any, Any] = value.cpu().numpy()
        return found


class CupyHolder:
    """See :class:`Holder`."""

    name = "cupy"

    def __init__(self) -> None:
        self._cupy = load("cupy")

    def kind(self, value: Any) -> Any:
        """See :meth:`Holder.kind`."""
        return value.shape, value.strides, value.dtype, value.device.id

    def numbers(self, value: Any) -> np.dtype[Any]:
        """See :meth:`Holder.numbers`."""
        found: np.dtype[Any] = value.dtype
        return found

    def strides(self, value: Any) -> tuple[int, ...]:
        """See :meth:`Holder.strides`."""
        return tuple(value.strides)

    def pointer(self, value: Any) -> int:
        """See :meth:`Holder.pointer`."""
        return int(value.data.ptr)

    def plain(self, label: str, value: Any) -> tuple[Any, str]:
        """See :meth:`Holder.plain`."""
        if not isinstance(value, self._cupy.ndarray):
            raise ValidationError(f"{label} is a {type(value).__name__} of CuPy; pass a cupy.ndarray")
        return value, ""

    def contiguous(self, value: Any, dtype: np.dtype[Any] | None = None, *, copy: bool = False) -> Any:
        """See :meth:`Holder.contiguous`."""
        if dtype is not None and dtype.kind != "c" and value.dtype.kind == "c":
            value = value.real
        value = value if dtype is None else value.astype(dtype, copy=False)
        if copy or not value.flags.c_contiguous:
            return value.copy("C")
        return value

    def permuted(self, value: Any, axes: tuple[int, ...]) -> Any:
        """See :meth:`Holder.permuted`."""
        return value.transpose(axes)

    def is_array(self, value: Any) -> bool:
        """See :meth:`Holder.is_array`."""
        return isinstance(value, self._cupy.ndarray)

    def mark(self, value: Any, alignment: int) -> Any:
        """See :meth:`Holder.mark`."""
        return value.shape, value.strides, value.dtype, value.device.id, alignment - 1

    def match(self, value: Any, mark: Any) -> int | None:
        """See :meth:`Holder.match`."""
        if value.__class__ is not self._cupy.ndarray:
            return None
        shape, strides, dtype, device, below = mark
        if value.shape != shape or value.strides != strides or value.dtype != dtype or value.device.id != device:
            return None
        pointer: int = value.data.ptr
        return None if pointer & below else pointer

    def is_current(self, device: int) -> bool:
        """See :meth:`Holder.is_current`."""
        return bool(self._cupy.cuda.runtime.getDevice() == device)

    def maker(self, shape: tuple[int, ...], dtype: np.dtype[Any], device: int) -> Callable[[], Any]:
        """See :meth:`Holder.maker`."""
        return partial(self._cupy.empty, shape, dtype)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any], device: int) -> Any:
        """See :meth:`Holder.empty`."""
        return self._cupy.empty(shape, dtype)

    def number(self, value: Any, dtype: np.dtype[Any], device: int) -> Any:
        """See :meth:`Holder.number`."""
        return self._cupy.full((), value, dtype)

    def zero(self, value: Any) -> None:
        """See :meth:`Holder.zero`."""
        value.fill(0)

    def stream(self, device: int) -> int:
        """See :meth:`Holder.stream`."""
        return int(self._cupy.cuda.get_current_stream(device).ptr)

    def at(self, device: int, stream: int | None) -> AbstractContextManager[Any]:
        """See :meth:`Holder.at`."""
        stack = ExitStack()
        stack.enter_context(self._cupy.cuda.Device(device))
        if stream is not None:
            stack.enter_context(self._cupy.cuda.ExternalStream(stream, device))
        return stack

    def written(self, value: Any) -> None:
        """See :meth:`Holder.written`."""

    def take(self, value: Any) -> Any:
        """See :meth:`Holder.take`."""
        return self._cupy.from_dlpack(value)

    def adopt(self, value: Any, device: int) -> Any:
        """See :meth:`Holder.adopt`."""
        return self._cupy.asarray(value)

    def download(self, value: Any) -> np.ndarray[Any, Any]:
        """See :meth:`Holder.download`."""
        found: np.ndarray[Any, Any] = self._cupy.asnumpy(value)
        return found


_HOLDERS: dict[str, type[TorchHolder] | type[CupyHolder]] = {"torch": TorchHolder, "cupy": CupyHolder}


@lru_cache(maxsize=2)
def holder(name: str) -> Holder:
    """The one of a library.

    :raises ImportError: if it is not installed.
    """
    return _HOLDERS[name]()


def holder_for(name: str) -> Holder:
    """Who holds the arrays of a library, or takes them by DLPack: what is loaded already first.

    :raises ValidationError: if there is neither torch with CUDA nor CuPy.
    """
    if name in _HOLDERS:
        return holder(name)
    for other in sorted(_HOLDERS, key=lambda known: known not in sys.modules):
        try:
            found = holder(other)
        except ImportError:
            continue
        if other != "torch" or load("torch").cuda.is_available():
            return found
    raise ValidationError(f"CUDA arrays of {name} are taken by DLPack through CuPy or torch; install one of them")


def stream_address(stream: Any) -> int | None:
    """The address of what ``stream=`` says: an object with ``__cuda_stream__``, of torch or CuPy, or the address itself.

    :raises ValidationError: if it is none.
    """
    if stream is None:
        return None
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        version_and_address = protocol() if callable(protocol) else protocol
        return int(version_and_address[1])
    for name in ("cuda_stream", "ptr"):
        if hasattr(stream, name):
            return int(getattr(stream, name))
    if isinstance(stream, int) and not isinstance(stream, bool):
        return stream
    raise ValidationError(f"stream is {stream!r}; pass an object with __cuda_stream__, or the address of a stream")
