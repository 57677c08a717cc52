"""Transform spaces: the problems that they are asked about, their declarations, and chains of several.

A space is a named, versioned family of transformations with parameters, written for the einsums of a pattern.
"""

from feinsum.space.chained import ChainSpace
from feinsum.space.failures import Missed, describe_failure
from feinsum.space.instance import Instance
from feinsum.space.problem import Choices, Configuration, Problem, Value
from feinsum.space.space import Part, Transform, TransformSpace, space

__all__ = [
    "ChainSpace",
    "Choices",
    "Configuration",
    "Instance",
    "Missed",
    "Part",
    "Problem",
    "Transform",
    "TransformSpace",
    "Value",
    "describe_failure",
    "space",
]
