"""OpenCL runtimes: their names, the places of their drivers, their peculiarities, and the defects of their compilers."""

from __future__ import annotations

from dataclasses import dataclass

_OF_RENDERERS = "the user has to be of the group that reads /dev/dri/render*, often 'render'"


@dataclass(frozen=True)
class Runtime:
    """One runtime.

    :ivar name: its name in the ids of devices.
    :ivar platform: part of the name of its platform, in lower case.
    :ivar driver: part of the name of its driver's library, in lower case.
    :ivar enabling: advice for a driver that finds no device.
    :ivar settings: the prefixes of environment variables that change which devices there are, or what they can do.
    :ivar nodes: patterns of the files by which the operating system shows its devices.
    :ivar version_file: the file that has the version of the kernel's part of the driver.
    :ivar library: the file of its driver, which containers often mount without the ``.icd`` file that names it;
        `directories` are the places to look for it.
    :ivar packaged: the path of its driver in a Python environment, if its ``.icd`` file names another place.
    :ivar has_clang_builtins: whether its compiler knows the builtins of clang: stores past the caches, and prefetching.
    :ivar broken_barriers: why kernels must not have barriers in branches: the compiler moves code across them, so that the
        process dies or results are wrong; empty if they may.
    :ivar target_variable: the environment variable with which it compiles for an older instruction set.
    """

    name: str
    platform: str = ""
    driver: str = ""
    enabling: str = ""
    settings: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    version_file: str = ""
    library: str = ""
    directories: tuple[str, ...] = ()
    packaged: str = ""
    has_clang_builtins: bool = False
    broken_barriers: str = ""
    target_variable: str = ""


RUNTIMES = (
    Runtime(
        "nvidia",
        "nvidia",
        "nvidia",
        "a container needs the GPUs, as in docker run --gpus all, and CUDA_VISIBLE_DEVICES may hide them",
        settings=("CUDA_", "NVIDIA_"),
        nodes=("/dev/nvidia[0-9]*",),
        version_file="/proc/driver/nvidia/version",
        library="libnvidia-opencl",
        directories=("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/local/nvidia/lib64"),
    ),
    Runtime(
        "amd",
        "amd accelerated",
        "amdocl",
        f"{_OF_RENDERERS}, and /dev/kfd; ROCR_VISIBLE_DEVICES and GPU_DEVICE_ORDINAL may hide devices",
        settings=("AMD_", "GPU_", "HIP_", "HSA_", "ROCR_", "ROCM_"),
        nodes=("/dev/kfd",),
    ),
    Runtime(
        "intel",
        "intel",
        "igdrcl",
        f"{_OF_RENDERERS}; ZE_AFFINITY_MASK may hide devices",
        settings=("CL_CONFIG_", "DPCPP_CPU_", "IGC_", "NEO", "ZE_"),
        packaged="lib/libintelocl.so",
        has_clang_builtins=True,
        target_variable="CL_CONFIG_CPU_TARGET_ARCH",
    ),
    Runtime("apple", "apple"),
    Runtime(
        "rusticl",
        "rusticl",
        "rusticl",
        "RUSTICL_ENABLE names the drivers that it may use, as in RUSTICL_ENABLE=radeonsi,iris,llvmpipe",
        settings=("DRI_PRIME", "GALLIUM_", "LIBGL_", "LP_", "MESA_", "RADV_", "RUSTICL_"),
        nodes=("/dev/dri/render*",),
    ),
    Runtime(
        "pocl",
        "portable computing language",
        "pocl",
        "POCL_DEVICES names its devices, as in POCL_DEVICES=cpu",
        settings=("POCL_",),
        has_clang_builtins=True,
        broken_barriers="PoCL 3.1 miscompiles barriers in branches, as where tiles end",
    ),
    Runtime("clover", "clover"),
    Runtime("clvk", "clvk", settings=("CLVK_", "VK_")),
    Runtime("oclgrind", "oclgrind", settings=("OCLGRIND_",)),
)
"""Known runtimes, best first: a maker's own before PoCL, which does not vectorise across work-items; a simulator last."""


def runtime_of(name: str) -> Runtime:
    """The runtime of a name in :data:`RUNTIMES`; for another name, one without peculiarities."""
    return next((runtime for runtime in RUNTIMES if runtime.name == name), Runtime(name))


def preference(name: str) -> int:
    """The position of a runtime in the order of preference, from 0; unknown ones count like PoCL."""
    names = [runtime.name for runtime in RUNTIMES]
    return names.index(name if name in names else "pocl")
