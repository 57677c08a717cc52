"""Holders of CUDA arrays: torch and CuPy, with their memory, contexts and streams.  Arrays of others pass through
DLPack."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import lru_cache, partial
from typing import Any, Protocol

import numpy as np

from feinsum.errors import DTypeError, ValidationError
from feinsum.interop.cuda.recognition import Recognise, cupy_arrays_like, tensors_like
from feinsum.interrupts import load_module


class Holder(Protocol):
    """The interface of a library that holds CUDA arrays.

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
        """Its strides in bytes."""

    def pointer(self, value: Any) -> int:
        """Where it begins."""

    def plain(self, label: str, value: Any) -> tuple[Any, str]:
        """An array of which the memory is what it says, and why it was copied for that; empty if it was not.

        :raises ValidationError: if its derivative would be lost, or it is sparse.
        """

    def contiguous(self, value: Any, dtype: np.dtype[Any] | None = None, *, copy: bool = False) -> Any:
        """The array, or a C-contiguous copy, of another type if one is given; `copy` demands a copy."""

    def permuted(self, value: Any, axes: tuple[int, ...]) -> Any:
        """A view with its axes in another order."""

    def is_array(self, value: Any) -> bool:
        """Whether something is an array of the library."""

    def like(self, given: Sequence[Any], alignments: Sequence[int]) -> Recognise:
        """A function that recognises arrays like these, which need no derivative, and gives their pointers.

        :param alignments: at a multiple of how many bytes each must begin.
        """

    def current_device(self) -> int:
        """The device that is the current one."""

    def maker(self, shape: tuple[int, ...], dtype: np.dtype[Any], device: int) -> Callable[[], Any]:
        """A function that makes arrays as :meth:`empty` does."""

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
        """Tell the library that a kernel wrote to the array."""

    def take(self, value: Any) -> Any:
        """An array of another library by DLPack."""

    def adopt(self, value: Any, device: int) -> Any:
        """An array over the memory that a ``__cuda_array_interface__`` describes."""

    def download(self, value: Any) -> np.ndarray[Any, Any]:
        """Its elements, when they are there."""


class Writable:
    """Read-only memory of a ``__cuda_array_interface__`` presented as writable, as torch demands; nothing writes to it."""

    def __init__(self, value: Any) -> None:
        self._value = value
        described = dict(value.__cuda_array_interface__)
        described["data"] = (described["data"][0], False)
        described.pop("stream", None)  # what reads it is put on the stream that wrote it
        self.__cuda_array_interface__ = described


class TorchHolder:
    """See :class:`Holder`."""

    name = "torch"

    def __init__(self) -> None:
        import torch

        self._torch = torch
        self._tensor = torch.Tensor
        self._count_write = torch.autograd.graph.increment_version
        names = (
            "float16 float32 float64 complex64 complex128 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool".split()
        )
        self._numbers = {getattr(torch, name): np.dtype(name) for name in names if hasattr(torch, name)}
        self._types = {own: other for other, own in self._numbers.items()}
        # What torch's own compiler takes: the public ways make an object of the stream, and look whether CUDA was begun.
        self.stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", self._current_stream)
        self.current_device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)

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
        found: int = value.data_ptr()
        return found

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

    def like(self, given: Sequence[Any], alignments: Sequence[int]) -> Recognise:
        """See :meth:`Holder.like`."""
        return tensors_like(self._torch, given, alignments)

    def maker(self, shape: tuple[int, ...], dtype: np.dtype[Any], device: int) -> Callable[[], Any]:
        """See :meth:`Holder.maker`."""
        own, where = self._types[dtype], self._torch.device("cuda", device)
        make = partial(self._torch.empty, shape, dtype=own, device=where)
        # As code of torch's compiler makes arrays, on the current device, in half the time; it is not public.
        quick = getattr(getattr(self._torch._C._dynamo, "guards", None), "_empty_strided_cuda", None)
        return make if quick is None else _as_well(partial(quick, shape, make().stride(), own), make)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any], device: int) -> Any:
        """See :meth:`Holder.empty`."""
        return self._torch.empty(shape, dtype=self._types[dtype], device=f"cuda:{device}")

    def number(self, value: Any, dtype: np.dtype[Any], device: int) -> Any:
        """See :meth:`Holder.number`."""
        return self._torch.full((), value, dtype=self._types[dtype], device=f"cuda:{device}")

    def zero(self, value: Any) -> None:
        """See :meth:`Holder.zero`."""
        value.zero_()

    def _current_stream(self, device: int) -> int:
        return int(self._torch.cuda.current_stream(device).cuda_stream)

    def at(self, device: int, stream: int | None) -> AbstractContextManager[Any]:
        """See :meth:`Holder.at`."""
        cuda = self._torch.cuda
        if stream is not None:
            return cuda.stream(cuda.ExternalStream(stream, device=device))  # type: ignore[no-any-return]
        return nullcontext() if cuda.current_device() == device else cuda.device(device)

    def written(self, value: Any) -> None:
        """See :meth:`Holder.written`."""
        self._count_write(value)

    def take(self, value: Any) -> Any:
        """See :meth:`Holder.take`."""
        return self._torch.from_dlpack(value)

    def adopt(self, value: Any, device: int) -> Any:
        """See :meth:`Holder.adopt`."""
        return self._torch.as_tensor(Writable(value), device=f"cuda:{device}")

    def download(self, value: Any) -> np.ndarray[Any, Any]:
        """See :meth:`Holder.download`."""
        found: np.ndarray[Any, Any] = value.cpu().numpy()
        return found


class CupyHolder:
    """See :class:`Holder`."""

    name = "cupy"

    def __init__(self) -> None:
        self._cupy = load_module("cupy")
        self.current_device: Callable[[], int] = self._cupy.cuda.runtime.getDevice

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

    def like(self, given: Sequence[Any], alignments: Sequence[int]) -> Recognise:
        """See :meth:`Holder.like`."""
        return cupy_arrays_like(self._cupy.ndarray, given, alignments)

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
        return self._cupy.asarray(Writable(value))

    def download(self, value: Any) -> np.ndarray[Any, Any]:
        """See :meth:`Holder.download`."""
        found: np.ndarray[Any, Any] = self._cupy.asnumpy(value)
        return found


def _as_well(quick: Callable[[], Any], make: Callable[[], Any]) -> Callable[[], Any]:
    """`quick` if it makes the same tensors as `make`; else `make`."""
    try:
        found, wanted = quick(), make()
    except Exception:  # of what is not public
        return make
    same = all(getattr(found, name) == getattr(wanted, name) for name in ("shape", "dtype", "device", "layout"))
    return quick if same and found.stride() == wanted.stride() and type(found) is type(wanted) else make


_HOLDERS: dict[str, type[TorchHolder] | type[CupyHolder]] = {"torch": TorchHolder, "cupy": CupyHolder}


@lru_cache(maxsize=2)
def holder(name: str) -> Holder:
    """The one of a library.

    :raises ImportError: if it is not installed.
    """
    return _HOLDERS[name]()


def holder_for(name: str) -> Holder:
    """The holder of a library's arrays, or one that takes them by DLPack, loaded libraries first.

    :raises ValidationError: if there is neither torch with CUDA nor CuPy.
    """
    return holder(name) if name in _HOLDERS else _taker(name)


@lru_cache(maxsize=16)
def _taker(name: str) -> Holder:
    """The holder that takes arrays by DLPack; found once, as torch asks the driver about devices each time.

    :raises ValidationError: if no library is there; one may be installed later.
    """
    for other in sorted(_HOLDERS, key=lambda known: known not in sys.modules):
        try:
            found = holder(other)
        except ImportError:
            continue
        if other != "torch" or load_module("torch").cuda.is_available():
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
