"""CUDA arrays of a call: kernels launched on them, and results of the library that they came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from feinsum.compile.call_cache import CallCache
from feinsum.devices import Device, devices
from feinsum.errors import DeviceError, DTypeError, ShapeError, ValidationError
from feinsum.interop.cuda.cuda_driver import bindings, device_name, wait_for_stream
from feinsum.interop.cuda.holders import Holder, holder_for, stream_address
from feinsum.interop.cuda.launching import BoundLaunches, CudaProgram
from feinsum.interop.cuda.quick import QuickCall, QuickCalls, QuickStep
from feinsum.interop.dlpack_arrays import Dlpack
from feinsum.interop.interface_arrays import InterfaceArrays
from feinsum.interop.library import Library
from feinsum.kernel.array_adapter import Copied, array_label, map_results
from feinsum.kernel.kernel_arguments import check_arguments

if TYPE_CHECKING:
    from feinsum.contract.evaluate import How
    from feinsum.contract.evaluation import Evaluation
    from feinsum.kernel.kernel import Kernel


def receive_cuda(
    inputs: Mapping[Any, Any], out: Any, owner: Library, wanted: Library, number: int, device: Device | None
) -> CudaArrayAdapter:
    """Arrays of one library on one CUDA device.

    :param number: of the device, as CUDA counts.
    :param device: where a kernel is made for; None if any will do.
    :raises ValidationError: if that is another device.
    """
    bindings()
    if device is not None:
        check_cuda_device(device, number)
    return CudaArrayAdapter(inputs, out, holder_for(owner.name), owner, wanted, number)


@lru_cache(maxsize=64)
def check_cuda_device(device: Device, number: int) -> None:
    """Check that kernels for an OpenCL device run on a CUDA device.

    :raises ValidationError: if they are different devices.
    """
    profile = device.profile
    if profile.runtime != "nvidia" or profile.name != device_name(number):
        raise ValidationError(
            f"the arrays are on cuda:{number}, {device_name(number)}, but the kernel is for {device}; generate it for that"
            f" device, or bring them to the host"
        )


@lru_cache(maxsize=16)
def opencl_device(number: int) -> Device:
    """The device that OpenCL calls what CUDA calls by a number: any of the same name, as they take the same kernels.

    :raises DeviceError: if there is none.
    """
    name = device_name(number)
    for device in devices():
        if device.usable and device.profile.runtime == "nvidia" and device.profile.name == name:
            return device
    raise DeviceError(f"OpenCL has no usable {name}, for which kernels are made; see `feinsum devices`")


@dataclass(frozen=True)
class Described:
    """The properties of an array that checks look at."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    strides: tuple[int, ...] = ()


@dataclass(frozen=True)
class CudaArrayAdapter:
    """See :class:`feinsum.kernel.array_adapter.ArrayAdapter`.

    :ivar inputs, out: arrays of the library, which the holder takes when the stream is current that is to wait for them.
    """

    inputs: Mapping[Any, Any]
    out: Any
    held: Holder
    library: Library
    wanted: Library
    number: int
    on_host: bool = False
    copied: tuple[Copied, ...] = ()

    def give(self, results: Any) -> tuple[Any, Sequence[Copied]]:
        """See :meth:`ArrayAdapter.give`."""
        if self.out is not None:
            map_results(self.out, self.held.written if self.library.name == self.held.name else self.library.written)
            return self.out, ()
        if self.wanted.name == self.held.name:
            return results, ()
        return _as_cuda_arrays(results, self.held, self.wanted)

    def launch(self, kernel: Kernel, scalars: Mapping[str, Any], stream: Any) -> tuple[Any, Sequence[Copied]]:
        """See :meth:`ArrayAdapter.launch`."""
        with self.held.at(self.number, stream_address(stream)):
            inputs, out = self._taken()
            results, copied = launcher_of(kernel).call(inputs, scalars, out, self.held, self.number, self.library.name)
            given, more = self.give(tuple(results) if len(results) > 1 else results[0])
        return given, (*copied, *more)

    def contract(
        self, text: str, how: How, stream: Any, known: dict[Any, Any]
    ) -> tuple[Any, Sequence[Copied], tuple[Evaluation, tuple[Any, ...]], Any]:
        """See :meth:`ArrayAdapter.contract`."""
        from feinsum.interop.cuda.cuda_contraction import contract_on_cuda

        with self.held.at(self.number, stream_address(stream)):
            inputs, out = self._taken()
            at_once = self.library.name != self.held.name
            result, copied, last, quick = contract_on_cuda(
                text, how, inputs, out, self.held, self.number, known, at_once=at_once
            )
            given, more = self.give(result)
        return given, (*copied, *more), last, None if at_once else quick

    def _taken(self) -> tuple[Mapping[Any, Any], Any]:
        """Operands and `out` as arrays of the holder."""
        if self.library.name == self.held.name:
            return self.inputs, self.out
        by_interface = isinstance(self.library, InterfaceArrays)
        take = self._adopted if by_interface else self.held.take
        numbers = (np.ndarray, np.generic, int, float, complex)
        inputs = {key: value if isinstance(value, numbers) else take(value) for key, value in self.inputs.items()}
        if self.out is None or not by_interface:
            return inputs, self.out
        if any(one.__cuda_array_interface__["data"][1] for one in _each_of(self.out)):
            raise ValidationError("out is read-only; pass an array that can be written")
        return inputs, map_results(self.out, take)

    def _adopted(self, value: Any) -> Any:
        """An array over memory that is described by ``__cuda_array_interface__``, ready on the current stream."""
        stream = value.__cuda_array_interface__.get("stream")
        if stream is not None:
            wait_for_stream(self.held.stream(self.number), int(stream))
        return self.held.adopt(value, self.number)


def _each_of(results: Any) -> Sequence[Any]:
    return results if isinstance(results, (tuple, list)) else (results,)


def _as_cuda_arrays(results: Any, held: Holder, wanted: Library) -> tuple[Any, Sequence[Copied]]:
    """Results as arrays of another library: by DLPack where it takes CUDA arrays, by the host else."""
    first = results[0] if isinstance(results, tuple) else results
    if wanted.name == "cupy":
        return map_results(results, holder_for("cupy").take), ()
    if wanted.name == "torch":
        return map_results(results, holder_for("torch").take), ()
    if wanted.name == "jax":
        import jax

        return map_results(results, jax.dlpack.from_dlpack), ()
    if wanted.name == "numpy":
        return map_results(results, held.download), (Copied("the result", "is on a CUDA device", int(first.nbytes)),)
    if isinstance(wanted, Dlpack):
        return map_results(results, wanted.take), ()
    if isinstance(wanted, InterfaceArrays):
        return results, ()  # they describe themselves in the same way
    raise ValidationError(f"the results are CUDA arrays, which {wanted.name} is not known to take; say like=")


class CudaLauncher:
    """The calls of one kernel with CUDA arrays; thread-safe."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel, self._einsum = kernel, kernel.einsum
        self._names = tuple(a.name for a in kernel.einsum.arrays)
        self._programs: dict[int, CudaProgram] = {}
        self._known = CallCache[tuple[tuple[int, ...], BoundLaunches]]()
        self._quick = QuickCalls(self._names)

    def call(
        self, inputs: Mapping[str, Any], scalars: Mapping[str, Any], out: Any, held: Holder, number: int, owner: str
    ) -> tuple[list[Any], Sequence[Copied]]:
        """The results, and what was copied; to be called with the device and the stream current.

        :param scalars: the numbers that epilogues take.
        :param owner: the library whose arrays the caller has.
        """
        if owner != held.name and not scalars and (known := self._quick.named(inputs, out)) is not None:
            return (list(known) if isinstance(known, tuple) else [known]), ()
        shape, bound, values = self._prepared(inputs, scalars, held, number)
        copied: list[Copied] = []
        plain = [self._taken(k, value, bound.alignments[k], held, copied) for k, value in enumerate(values)]
        if out is None:
            results = [held.empty(shape, dtype, number) for dtype in self._einsum.dtypes]
        else:
            results = self._given(out, shape, bound, plain, held, copied)
        if bound.empty:
            if self._einsum.epilogues:
                raise ValidationError(
                    "an axis has no length, and epilogues of sums without terms are not made on CUDA arrays"
                )
            for result in results:
                held.zero(result)
            return results, copied
        scratch = [held.empty((size,), np.dtype(np.uint8), number) for size in bound.scratch_bytes]
        pointers = [held.pointer(value) for value in (*plain, *results, *scratch)]
        bound.enqueue(pointers, held.stream(number))
        if not copied and not scalars:
            self._remember(values, [] if out is None else results, shape, bound, held, number)
            self._kernel.quick = self._quick.named if held.name == owner else self._kernel.quick
        return results, copied

    def _remember(
        self,
        values: Sequence[Any],
        out: Sequence[Any],
        shape: tuple[int, ...],
        bound: BoundLaunches,
        held: Holder,
        number: int,
    ) -> None:
        """Let calls like this one be quick."""
        made = () if out else tuple(held.maker(shape, dtype, number) for dtype in self._einsum.dtypes)
        scratch = tuple(held.maker((size,), np.dtype(np.uint8), number) for size in bound.scratch_bytes)
        step, finish = QuickStep(None, made, scratch, bound), tuple if len(made) > 1 else None
        alignments = [*bound.alignments[: len(values)], *[max(bound.alignments[len(values) :])] * len(out)]
        self._quick.add(QuickCall(held, number, values, out, alignments, [step], finish), values, out or None)

    def bind(self, lengths: Mapping[str, int], number: int, scalars: Mapping[str, Any] | None = None) -> BoundLaunches:
        """The launches on a device for arrays of certain lengths.

        :param lengths: the length of each index of the einsum.
        :param scalars: the numbers that epilogues take.
        """
        executable = self._kernel.executable_for(lengths)
        program = self._programs.get(id(executable))
        if program is None:
            program = self._programs.setdefault(id(executable), CudaProgram(executable))
        return program.bind(self._kernel, lengths, number, scalars or {})

    def _prepared(
        self, inputs: Mapping[str, Any], scalars: Mapping[str, Any], held: Holder, number: int
    ) -> tuple[tuple[int, ...], BoundLaunches, list[Any]]:
        values: list[Any] = [inputs[name] for name in self._names] if len(inputs) == len(self._names) else []
        kinds = [held.kind(value) for value in values]
        key = (held.name, number, *kinds, *scalars.values())
        known = self._known.get(key) if values and None not in kinds else None
        if known is None:
            unknown = [name for name in inputs if name not in self._names]
            if unknown:
                raise ValidationError(f"'{unknown[0]}' is no array of the kernel, which takes {', '.join(self._names)}")
            seen = {name: Described(tuple(value.shape), held.numbers(value)) for name, value in inputs.items()}
            lengths = check_arguments(self._einsum, seen)
            values = [inputs[name] for name in self._names]
            known = tuple(lengths[letter] for letter in self._einsum.indexing.output), self.bind(lengths, number, scalars)
            self._known[key] = known
        return *known, values

    def _taken(self, k: int, value: Any, alignment: int, held: Holder, copied: list[Copied]) -> Any:
        """An array that the kernel takes: with the memory that it says, contiguous, beginning where vectors may."""
        label = array_label(self._names[k])
        plain, why = held.plain(label, value) if held.kind(value) is None else (value, "")
        found = take_array(plain, alignment, held)
        if found is not plain:
            why = why or ("is strided" if held.pointer(plain) % alignment == 0 else "is not aligned for vector access")
        if why:
            copied.append(Copied(label, why, int(value.nbytes)))
        return found

    def _given(
        self,
        out: Any,
        shape: tuple[int, ...],
        bound: BoundLaunches,
        plain: Sequence[Any],
        held: Holder,
        copied: list[Copied],
    ) -> list[Any]:
        """The arrays for the results, checked.

        :raises ValidationError, ShapeError, DTypeError: if one does not do.
        """
        given = list(out) if isinstance(out, (tuple, list)) else [out]
        if len(given) != len(self._einsum.dtypes):
            raise ValidationError(f"out has {len(given)} arrays but the kernel has {len(self._einsum.dtypes)} outputs")
        for value, dtype in zip(given, self._einsum.dtypes, strict=True):
            check_cuda_result(value, shape, dtype, held)
            if held.pointer(value) % max(bound.alignments[len(self._names) :]):
                raise ValidationError("out is not aligned for vector access; pass an array that is no part of another")
        for k, value in enumerate(plain):
            if any(overlap(value, result, held) for result in given):
                # The copy is made on the same stream, and so before the kernel writes.
                plain[k] = held.contiguous(value, copy=True)  # type: ignore[index]
                copied.append(Copied(array_label(self._names[k]), "shares memory with the result", int(value.nbytes)))
        return given


def take_array(value: Any, alignment: int, held: Holder) -> Any:
    """The array itself if a kernel takes it, or else a copy on its device."""
    found = held.contiguous(value)
    return found if held.pointer(found) % alignment == 0 or not found.nbytes else held.contiguous(found, copy=True)


def check_cuda_result(value: Any, shape: tuple[int, ...], dtype: np.dtype[Any], held: Holder) -> None:
    """Check an array for a result.

    :raises ValidationError, ShapeError, DTypeError: if it is no array of the library, strided, of another shape or type.
    """
    if not hasattr(value, "shape") or type(value).__module__.partition(".")[0] != held.name:
        raise ValidationError(f"out is a {type(value).__name__}; pass a {held.name} array, as the inputs are")
    plain, why = held.plain("out", value)
    if tuple(value.shape) != shape:
        raise ShapeError(f"out has shape {tuple(value.shape)} but the result has {shape}")
    if held.numbers(value) != dtype:
        raise DTypeError(f"out is {held.numbers(value)} but the result is {dtype}")
    if why or held.contiguous(plain) is not plain:
        raise ValidationError("out is not C-contiguous; pass a contiguous array")


def overlap(a: Any, b: Any, held: Holder) -> bool:
    """Whether two contiguous arrays share memory."""
    first, second = held.pointer(a), held.pointer(b)
    return bool(a.nbytes and b.nbytes and first < second + b.nbytes and second < first + a.nbytes)


def launcher_of(kernel: Kernel) -> CudaLauncher:
    """The calls of a kernel with CUDA arrays; kept with it."""
    found: CudaLauncher | None = kernel.launchers.get("cuda")
    return found or kernel.launchers.setdefault("cuda", CudaLauncher(kernel))
