"""Stable names of devices: ``kind:runtime:model:units``, the same whatever a driver calls the hardware.

One processor is ``pthread-skylake-avx512-AMD EPYC`` to one driver and ``AMD EPYC`` to another; the runtime is part of the
name all the same, since the fast kernels of one are the slow ones of the other.
"""

from __future__ import annotations

import re

from feinsum.devices.host import Processor
from feinsum.devices.vendors.runtimes import RUNTIMES

_DECORATION = re.compile(r"\((?:R|TM|C)\)|@.*|\b\d+-Core\b|\bProcessor\b|\bCPU\b|\bwith Radeon .*", re.IGNORECASE)


def runtime_name(platform: str) -> str:
    """The runtime behind the name of an OpenCL platform.

    >>> runtime_name("Portable Computing Language"), runtime_name("Intel(R) OpenCL"), runtime_name("NVIDIA CUDA")
    ('pocl', 'intel', 'nvidia')
    """
    lower = platform.lower()
    return next((runtime.name for runtime in RUNTIMES if runtime.platform in lower), slug(platform))


def device_id(kind: str, runtime: str, model: str, compute_units: int) -> str:
    """The id of a device.

    >>> device_id("gpu", "nvidia", "nvidia-h200", 132)
    'gpu:nvidia:h200:132cu'
    """
    return f"{kind}:{runtime}:{model.removeprefix(runtime + '-')}:{compute_units}cu"


def gpu_model(name: str) -> str:
    """The model in the name of an accelerator.

    >>> gpu_model("NVIDIA H200")
    'nvidia-h200'
    """
    return slug(_DECORATION.sub(" ", name))


def cpu_model(name: str, processor: Processor) -> str:
    """The model in the name of a CPU device; the system's own name for its processor where the two are of one."""
    brand = processor.brand if processor.brand and processor.brand in name else _strip_compiler_target(name)
    model = slug(_DECORATION.sub(" ", brand))
    # A hypervisor may hide the number: "AMD EPYC" alone is any of five generations.
    if processor.family is not None and not re.search(r"\d{3}", model):
        model += f"-f{processor.family}m{processor.model or 0}"
    # With other vectors it is another device: the kernels that are fast on the one spill or idle on the other.
    return f"{model}-{slug(processor.target)}" if processor.target else model


def slug(text: str) -> str:
    """Lower-case words joined by hyphens.

    >>> slug("Intel(R) Xeon(R) Platinum 8480+")
    'intel-r-xeon-r-platinum-8480'
    """
    return "-".join(re.findall(r"[a-z0-9.]+", text.lower())) or "unknown"


def _strip_compiler_target(name: str) -> str:
    """Without what PoCL puts in front: how it runs work-items and, in some versions, what it compiles for."""
    return re.sub(r"^(?:pthread|basic|cpu(?:-minimal)?|cpu-tbb)-", "", name)
