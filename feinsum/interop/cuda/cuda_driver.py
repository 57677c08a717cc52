"""The few calls of CUDA's driver: load PTX, launch, and find the context in which the arrays are.  No context is made."""

from __future__ import annotations

import contextlib
from functools import lru_cache
from typing import Any

from feinsum._checkout import how_to_install
from feinsum.errors import DeviceError
from feinsum.interrupts import load_module

INVALID_CONTEXT = 201
"""``CUDA_ERROR_INVALID_CONTEXT``: this thread has none yet."""
_MOST_SHARED = 8
"""``CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES``."""
_ATTRIBUTES = {"major": 75, "minor": 76}
"""``CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*``."""


@lru_cache(maxsize=1)
def bindings() -> Any:
    """NVIDIA's ``cuda.bindings.driver``.

    :raises DeviceError: if it is not installed, or finds no driver.
    """
    try:
        driver = load_module("cuda.bindings.driver")
        check_status(driver.cuInit(0))
    except ImportError:
        raise DeviceError(f"CUDA arrays need NVIDIA's cuda-bindings: {how_to_install('cuda')}") from None
    except RuntimeError as error:  # of cuda.pathfinder
        raise DeviceError(f"CUDA's driver cannot be used: {error}") from None
    return driver


def check_status(answer: tuple[Any, ...]) -> Any:
    """The result of a call.

    :raises DeviceError: if it failed.
    """
    status, *values = answer
    if int(status):
        raise DeviceError(f"CUDA's driver says {getattr(status, 'name', status)}")
    return values[0] if values else None


class LoadedPtx:
    """Kernels in PTX, for every device and context of the process."""

    def __init__(self, text: str) -> None:
        driver = bindings()
        status, self._library = driver.cuLibraryLoadData(text.encode() + b"\0", [], [], 0, [], [], 0)
        if int(status):
            raise DeviceError(f"CUDA's driver refuses the kernel ({status.name}), which OpenCL's takes")

    def kernel(self, name: str, shared_bytes: int, device: int) -> Any:
        """A kernel to be launched on a device, with so many bytes of shared memory that are asked for at launch."""
        driver = bindings()
        kernel = check_status(driver.cuLibraryGetKernel(self._library, name.encode()))
        if shared_bytes:
            attribute = driver.CUfunction_attribute(_MOST_SHARED)
            check_status(
                driver.cuKernelSetAttribute(attribute, shared_bytes, kernel, check_status(driver.cuDeviceGet(device)))
            )
        return driver.CUfunction(int(kernel))


def device_name(number: int) -> str:
    """The name of a device, as OpenCL's driver has it, too."""
    driver = bindings()
    name: bytes = check_status(driver.cuDeviceGetName(256, check_status(driver.cuDeviceGet(number))))
    return name.split(b"\0")[0].decode()


def pci_bus_id(number: int) -> str:
    """The address of a device on the bus, ``0000:c5:00.0``: tells equal devices apart."""
    driver = bindings()
    name: bytes = check_status(driver.cuDeviceGetPCIBusId(32, check_status(driver.cuDeviceGet(number))))
    return name.split(b"\0")[0].decode().lower()


def device_of(pointer: int) -> int:
    """The number of the device that memory is on.

    :raises DeviceError: if CUDA's driver does not know the memory.
    """
    driver = bindings()
    ordinal = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    return int(check_status(driver.cuPointerGetAttribute(ordinal, pointer)))


def wait_for_stream(waiting: int, other: int) -> None:
    """Make one stream wait for the work queued so far on another; the host does not block."""
    driver = bindings()
    event = check_status(driver.cuEventCreate(driver.CUevent_flags.CU_EVENT_DISABLE_TIMING.value))
    try:
        check_status(driver.cuEventRecord(event, driver.CUstream(other)))
        check_status(driver.cuStreamWaitEvent(driver.CUstream(waiting), event, 0))
    finally:
        driver.cuEventDestroy(event)  # once it has been reached


@contextlib.contextmanager
def context_of(number: int) -> Any:
    """Make the primary context of a device current: that of torch, CuPy and JAX."""
    driver = bindings()
    device = check_status(driver.cuDeviceGet(number))
    context = check_status(driver.cuDevicePrimaryCtxRetain(device))
    check_status(driver.cuCtxPushCurrent(context))
    try:
        yield
    finally:
        check_status(driver.cuCtxPopCurrent())
        check_status(driver.cuDevicePrimaryCtxRelease(device))
