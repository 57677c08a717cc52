"""Device profiles that do not depend on the machine the tests run on."""

from __future__ import annotations

from dataclasses import replace

from feinsum.devices import DeviceProfile

CPU = DeviceProfile(
    id="cpu:intel:some-cpu:4cu",
    architecture="x86-64-some-avx512",
    name="Some CPU",
    platform="Intel(R) OpenCL",
    vendor="Intel(R) Corporation",
    kind="cpu",
    driver="2025.1; OpenCL 3.0",
    opencl_version="3.0",
    compute_units=4,
    max_work_group_size=8192,
    max_work_item_sizes=(8192, 8192, 8192),
    local_memory_bytes=256 << 10,
    local_memory_is_dedicated=False,
    static_local_memory_bytes=256 << 10,
    global_memory_bytes=16 << 30,
    max_allocation_bytes=8 << 30,
    cache_bytes=32 << 20,
    cacheline_bytes=64,
    simd_bytes=64,
    sub_group_sizes=(4, 8, 16, 32, 64),
    fp64=True,
    fp16=False,
    host_unified_memory=True,
    extensions=("cl_khr_fp64", "cl_khr_subgroup_shuffle"),
)
GPU = replace(
    CPU,
    id="gpu:nvidia:some-gpu:132cu",
    architecture="nvidia-sm90",
    name="Some GPU",
    platform="NVIDIA CUDA",
    vendor="NVIDIA Corporation",
    kind="gpu",
    compute_units=132,
    max_work_group_size=1024,
    max_work_item_sizes=(1024, 1024, 64),
    local_memory_bytes=48 << 10,
    local_memory_is_dedicated=True,
    static_local_memory_bytes=226 << 10,
    global_memory_bytes=139 << 30,
    max_allocation_bytes=34 << 30,
    cache_bytes=50 << 20,
    cacheline_bytes=128,
    simd_bytes=0,
    sub_group_sizes=(32,),
    host_unified_memory=False,
    extensions=("cl_khr_fp64",),
    compute_capability=(9, 0),
    matrix_units=("fp64-mma-m8n8k4", "fp64-mma-m16n8k4", "fp64-mma-m16n8k8", "fp64-mma-m16n8k16", "tf32-mma-m16n8k8"),
    instructions=("cp-async-16", "shfl-sync"),
    registers_per_compute_unit=65536,
    max_registers_per_work_item=255,
)
