"""Arrays of any library in, results of the same library out.

On the host they are shown to numpy where they are, by DLPack or the library's own way, and results by the same way back; on
CUDA devices kernels are launched on them (:mod:`feinsum.interop.cuda`).  What had to be copied is written down.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from feinsum.compile.buffers import download, library_of, upload
from feinsum.devices import Device
from feinsum.errors import ValidationError
from feinsum.interop.library import Library
from feinsum.interrupts import load_module
from feinsum.kernel.array_adapter import Copied, array_label, is_number, map_results

if TYPE_CHECKING:
    from feinsum.contract.evaluate import How
    from feinsum.contract.evaluation import Evaluation
    from feinsum.kernel.kernel import Kernel

_KNOWN = {
    "torch": ("feinsum.interop.torch_arrays", "Torch"),
    "jax": ("feinsum.interop.jax_arrays", "Jax"),
    "cupy": ("feinsum.interop.cupy_arrays", "Cupy"),
    "numpy": ("feinsum.interop.numpy_arrays", "Numpy"),
}
"""Libraries by the package that their classes are of."""
_PACKAGES = {"jaxlib": "jax", **{name: name for name in _KNOWN}}
"""Whose arrays the classes of a package are."""
LIKE = (*_KNOWN, "pyopencl")
"""The names that ``like=`` takes."""


@cache
def _library(name: str) -> Library:
    module, attribute = _KNOWN[name]
    found: Library = getattr(load_module(module), attribute)()
    return found


@cache
def _library_of_class(kind: type) -> str | None:
    """The name of the library that a class, or one that it derives from, is of; None if it is not known by name."""
    packages = (one.__module__.partition(".")[0] for one in kind.__mro__)
    return next((_PACKAGES[package] for package in packages if package in _PACKAGES), None)


_others: dict[str, Library] = {}


def find_library(value: Any) -> Library | None:
    """The library of an array; None for what is none, and for arrays of pyopencl."""
    name = _library_of_class(value.__class__)
    if name is not None:
        # JAX has types and functions that are no arrays; so have others.
        return _library(name) if hasattr(value, "shape") and hasattr(value, "dtype") else None
    package = type(value).__module__.partition(".")[0]
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        from feinsum.interop.dlpack_arrays import Dlpack

        return _others.setdefault(package, Dlpack(value))
    if hasattr(value, "__cuda_array_interface__"):
        from feinsum.interop.interface_arrays import InterfaceArrays

        return _others.setdefault(f"{package}, by interface", InterfaceArrays(value))
    return None


@dataclass(frozen=True)
class HostArrayAdapter:
    """Arrays of one library in the memory of the host; see :class:`feinsum.kernel.array_adapter.ArrayAdapter`."""

    inputs: Mapping[Any, Any]
    out: Any
    copied: tuple[Copied, ...]
    own_out: Any
    library: Library
    wanted: Library
    on_host: bool = True

    def give(self, results: Any) -> tuple[Any, Sequence[Copied]]:
        """See :meth:`ArrayAdapter.give`."""
        if self.own_out is not None:
            map_results(self.own_out, self.library.written)
            return self.own_out, ()
        return _as_library_arrays(results, self.wanted)

    def launch(self, kernel: Kernel, scalars: Mapping[str, Any], stream: Any) -> tuple[Any, Sequence[Copied]]:
        """See :meth:`ArrayAdapter.launch`."""
        raise AssertionError("arrays on the host are launched by the kernel")

    def contract(
        self, text: str, how: How, stream: Any, known: dict[Any, Any]
    ) -> tuple[Any, Sequence[Copied], tuple[Evaluation, tuple[Any, ...]], Any]:
        """See :meth:`ArrayAdapter.contract`."""
        raise AssertionError("arrays on the host are contracted by the equation")


def adapt_host_arrays(
    inputs: Mapping[Any, Any], out: Any, like: Any, device: Device | None, written: Collection[Any] = ()
) -> Any:
    """See :func:`feinsum.kernel.array_adapter.adapt_arrays`."""
    libraries = {key: find_library(value) for key, value in inputs.items()}
    foreign = {key: one for key, one in libraries.items() if one is not None and one.name != "numpy"}
    if not foreign:
        return None
    owner = next(iter(foreign.values()))
    places = _check_one_library(inputs, libraries, owner)
    [place] = set(places.values())
    wanted = owner if like is None else like_library(like)
    if out is not None and like is not None:
        raise ValidationError("out says whose the result is; leave out like=")
    if place.startswith("cuda:"):
        from feinsum.interop.cuda.cuda_adapter import receive_cuda

        return receive_cuda(inputs, out, owner, wanted, int(place.partition(":")[2]), device)
    if place != "cpu":
        raise ValidationError(_elsewhere(next(iter(places)), place))
    return _on_host(inputs, foreign, out, owner, wanted, written)


def _check_one_library(
    inputs: Mapping[Any, Any], libraries: Mapping[Any, Library | None], owner: Library
) -> dict[str, str]:
    """Where each array of the library is; numbers go with any.

    :raises ValidationError: if there are others, or they are in different places.
    """
    places = {}
    for key, value in inputs.items():
        library = libraries[key]
        if library is owner:
            places[array_label(key)] = owner.place(value)
        elif not is_number(value) or library_of(value) == "pyopencl" or (library is not None and library.name != "numpy"):
            names = {k: one.name if one is not None else _said(inputs[k]) for k, one in libraries.items()}
            shown = ", ".join(f"{array_label(k)}: {name}" for k, name in names.items())
            raise ValidationError(f"arrays of two libraries are mixed ({shown}); pass all of one")
    for label, place in places.items():
        if place in _WITHOUT_ELEMENTS:
            raise ValidationError(_elsewhere(label, place))
    if len(set(places.values())) > 1:
        shown = ", ".join(f"{label}: {place}" for label, place in places.items())
        raise ValidationError(f"arrays are in two places ({shown}); bring all to one")
    return places


_WITHOUT_ELEMENTS = ("tracing", "meta")
"""Places of arrays that only an operator takes, whatever is beside them."""


def _said(value: Any) -> str:
    return library_of(value) or type(value).__name__


def _elsewhere(label: str, place: str) -> str:
    if place == "tracing":
        return f"{label} is traced by JAX and has no elements yet; call feinsum.jax.einsum"
    if place == "meta":
        return f"{label} is on the device 'meta' and has no elements; call feinsum.torch.einsum"
    return f"{label} is on {place}, which no kernel reaches; bring it to the host, or to one CUDA device"


def _on_host(
    inputs: Mapping[Any, Any],
    foreign: Mapping[Any, Library],
    out: Any,
    owner: Library,
    wanted: Library,
    written: Collection[Any],
) -> HostArrayAdapter:
    seen, copied = {}, []
    for key, value in inputs.items():
        seen[key], why = owner.borrow(array_label(key), value, written=key in written) if key in foreign else (value, "")
        if why:
            copied.append(Copied(array_label(key), why, int(seen[key].nbytes)))
    shown = None
    if out is not None:
        shown = map_results(out, lambda one: _borrow_out(one, owner))
    return HostArrayAdapter(seen, shown, tuple(copied), out, owner, wanted)


def _borrow_out(value: Any, owner: Library) -> Any:
    if find_library(value) is not owner:
        raise ValidationError(f"out is a {type(value).__name__}; pass a {owner.name} array, as the inputs are")
    if owner.place(value) != "cpu":
        raise ValidationError(f"out is on {owner.place(value)}, and the inputs on cpu")
    return owner.borrow("out", value, written=True)[0]


def like_library(like: Any) -> Library:
    """The library that ``like=`` means.

    :raises ValidationError: if it means none, or pyopencl, whose arrays need a queue.
    """
    if isinstance(like, str) and like in _KNOWN:
        try:
            return _library(like)
        except ImportError as error:
            raise ValidationError(f"like is {like!r}, which is not installed: {error}") from None
    found = None if isinstance(like, str) else find_library(like)
    if found is None:
        said = repr(like) if isinstance(like, str) else f"a {type(like).__name__}"
        raise ValidationError(f"like is {said}; it is an array, or one of {', '.join(LIKE)}")
    return found


def _as_library_arrays(results: Any, library: Library) -> tuple[Any, Sequence[Copied]]:
    copied: list[Copied] = []

    def give(value: Any) -> Any:
        given, why = library.give(value)
        if why:
            copied.append(Copied("the result", why, int(np.asarray(value).nbytes)))
        return given

    return map_results(results, give), copied


def give_like(results: Any, like: Any, queue: Any) -> tuple[Any, Sequence[Copied]]:
    """See :func:`feinsum.kernel.array_adapter.return_like`."""
    on_device = library_of(results[0] if isinstance(results, tuple) else results) == "pyopencl"
    if (isinstance(like, str) and like == "pyopencl") or (not isinstance(like, str) and library_of(like) == "pyopencl"):
        if on_device:
            return results, ()
        hosts = map_results(results, np.ascontiguousarray)
        copied = [
            Copied("the result", "is on the host", one.nbytes) for one in (hosts if isinstance(hosts, tuple) else (hosts,))
        ]
        return map_results(hosts, lambda value: upload(value, queue)), copied
    library = like_library(like)
    if not on_device:
        return _as_library_arrays(results, library)
    hosts = map_results(results, download)
    copied = [
        Copied("the result", "is on the device", one.nbytes) for one in (hosts if isinstance(hosts, tuple) else (hosts,))
    ]
    given, more = _as_library_arrays(hosts, library)
    return given, [*copied, *more]
