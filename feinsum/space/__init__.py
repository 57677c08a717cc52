"""Transform spaces: what a space is asked about, what it declares, and chains of several.

A space is a named, versioned family of transformations with parameters, written for the einsums of a pattern.
"""

from feinsum.space.space import (
    Choices,
    Configuration,
    Part,
    Problem,
    Schedules,
    Transform,
    TransformSpace,
    Value,
    space,
)

__all__ = [
    "Choices",
    "Configuration",
    "Part",
    "Problem",
    "Schedules",
    "Transform",
    "TransformSpace",
    "Value",
    "space",
]
