"""Batched Einstein summations as fast kernels on any OpenCL device.

>>> import numpy as np
>>> import feinsum as fe
>>> e = fe.einsum("xre,rij,ej->xei", fe.array("J", (3, 3, "E")), fe.array("D", (3, 20, 20)), fe.array("u", ("E", 20)))
>>> kernel = fe.generate(e)
>>> kernel(J=np.ones((3, 3, 500)), D=np.ones((3, 20, 20)), u=np.ones((500, 20))).shape
(3, 500, 20)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from feinsum import _backend, _checkout
from feinsum._version import __version__
from feinsum.canonicalization import (
    CanonicalEinsum,
    Renaming,
    canonicalize_einsum,
    is_isomorphic,
    isomorphism,
)
from feinsum.contraction import ContractionSchedule, pairwise_schedule
from feinsum.cost import Roofline, roofline
from feinsum.database import Database, TuningRecord
from feinsum.devices import Device, DeviceProfile, device, devices
from feinsum.einsum import Array, BatchedEinsum, array, batched_einsum, einsum
from feinsum.errors import (
    ArgumentError,
    DatabaseError,
    DeviceError,
    DTypeError,
    FeinsumError,
    JobError,
    LanguageError,
    MatchError,
    SearchError,
    ShapeError,
    SpaceError,
    SubscriptError,
    TransformError,
    UnknownDeviceError,
    UnknownStoreError,
    ValidationError,
)
from feinsum.generate import generate
from feinsum.interrupts import load_module as _load
from feinsum.query import query
from feinsum.space import Problem, TransformSpace, space

if TYPE_CHECKING:
    from feinsum.contract.contract import contract, contract_expression, contract_path
    from feinsum.contract.sharing import shared_intermediates
    from feinsum.exploration import explore
    from feinsum.generate.transform import transform
    from feinsum.kernel.kernel import Kernel
    from feinsum.kernel.saving import load
    from feinsum.languages.building import Built, build
    from feinsum.languages.declarative.tracing import kernel
    from feinsum.languages.immediate.planning import plan
    from feinsum.languages.program import Program, program
    from feinsum.lower import generate_loopy
    from feinsum.match import (
        Match,
        add_loop,
        extract_operands,
        find_einsums,
        match_einsum,
        match_t_unit_to_einsum,
        spread_loops,
    )
    from feinsum.timing import Timing
    from feinsum.tune.autotune import autotune
    from feinsum.tune.report import TuningReport
    from feinsum.tune.timeit import timeit

# Python binds a package here when one of its modules is first imported, but these names mean functions.  So the packages,
# which consist of docstrings, are loaded now, and their names are left to `__getattr__`.
for _name in ("build", "contract", "kernel"):
    import_module(f"feinsum.{_name}")
    globals().pop(_name, None)
_checkout.serve_checkout()
_backend.register()

_LAZY = {
    "Built": "feinsum.languages.building",
    "Kernel": "feinsum.kernel.kernel",
    "Match": "feinsum.match",
    "Program": "feinsum.languages.program",
    "Timing": "feinsum.timing",
    "TuningReport": "feinsum.tune.report",
    "add_loop": "feinsum.match",
    "autotune": "feinsum.tune.autotune",
    "build": "feinsum.languages.building",
    "contract": "feinsum.contract.contract",
    "contract_expression": "feinsum.contract.contract",
    "contract_path": "feinsum.contract.contract",
    "explore": "feinsum.exploration",
    "extract_operands": "feinsum.match",
    "find_einsums": "feinsum.match",
    "generate_loopy": "feinsum.lower",
    "kernel": "feinsum.languages.declarative.tracing",
    "load": "feinsum.kernel.saving",
    "match_einsum": "feinsum.match",
    "match_t_unit_to_einsum": "feinsum.match",
    "plan": "feinsum.languages.immediate.planning",
    "program": "feinsum.languages.program",
    "shared_intermediates": "feinsum.contract.sharing",
    "spread_loops": "feinsum.match",
    "timeit": "feinsum.tune.timeit",
    "transform": "feinsum.generate.transform",
}
"""Names whose modules load loopy, pyopencl or lark, and so are loaded when first asked for."""


_OPERATORS = ("jax", "torch")
"""Modules with operators for libraries that need not be installed."""


def __getattr__(name: str) -> Any:
    if name in _OPERATORS:
        return _load(f"feinsum.{name}")
    if name not in _LAZY:
        raise AttributeError(f"module 'feinsum' has no attribute {name!r}")
    value = globals()[name] = getattr(_load(_LAZY[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = [
    "ArgumentError",
    "Array",
    "BatchedEinsum",
    "Built",
    "CanonicalEinsum",
    "ContractionSchedule",
    "DTypeError",
    "Database",
    "DatabaseError",
    "Device",
    "DeviceError",
    "DeviceProfile",
    "FeinsumError",
    "JobError",
    "Kernel",
    "LanguageError",
    "Match",
    "MatchError",
    "Problem",
    "Program",
    "Renaming",
    "Roofline",
    "SearchError",
    "ShapeError",
    "SpaceError",
    "SubscriptError",
    "Timing",
    "TransformError",
    "TransformSpace",
    "TuningRecord",
    "TuningReport",
    "UnknownDeviceError",
    "UnknownStoreError",
    "ValidationError",
    "__version__",
    "add_loop",
    "array",
    "autotune",
    "batched_einsum",
    "build",
    "canonicalize_einsum",
    "contract",
    "contract_expression",
    "contract_path",
    "device",
    "devices",
    "einsum",
    "explore",
    "extract_operands",
    "find_einsums",
    "generate",
    "generate_loopy",
    "is_isomorphic",
    "isomorphism",
    "kernel",
    "load",
    "match_einsum",
    "match_t_unit_to_einsum",
    "pairwise_schedule",
    "plan",
    "program",
    "query",
    "roofline",
    "shared_intermediates",
    "space",
    "spread_loops",
    "timeit",
    "transform",
]
