"""The rules of the declarative language, by the ids under which diagnostics name them."""

from __future__ import annotations

from typing import Final

RULES: Final = {
    "syntax": "The text follows the grammar.",
    "name-undefined": "A name is defined before it is used, in the same block or in one around it.",
    "name-redefined": "A block defines a name once; tensors that a thread scope shares are redeclared by it.",
    "hole": "``...`` is filled in before a program is used.",
    "form": "A form is one of those that the language has, with the arguments that it takes.",
    "arity": "A binder has a name for each axis of the shape, and a function the arguments that it takes.",
    "operator": "A reduction is a sum, prod, min, max, any, all, argmin or argmax; a scan is one of the first four.",
    "block-value": "A block ends with its value, and what is computed in it is named or its value.",
    "rank": "An element has an index for each axis of its tensor.",
    "index": "Indices, lengths and bounds are integers.",
    "bounds": "Elements that are read exist, for the indices and under the conditions around them.",
    "shape": "Shapes fit each other: tensors of equal shape, or a tensor and a number.",
    "type": "Arithmetic is of numbers, conditions are of bool, and two ways of a choice agree.",
    "division": "Integers are divided exactly; `floordiv` and `cdiv` round.",
    "grid-result": "The result of a grid is said to have a shape, and its tiles have one that is the same everywhere.",
    "loop-state": "What a loop carries keeps its shape.",
    "tune-value": "A tuned number decides how, not what: it becomes no data.",
    "function": "Functions that are arguments are called, with as many arguments as they take.",
    "mutate": "Only a thread scope changes tensors: those that it shares, and those that it allocates.",
    "nesting": "A thread scope has no thread scope, `compute` or `reduce` in it; `sync`, Shared and Register stand in one.",
    "sync-uniform": "A `sync` is met by all threads, so it stands under no condition that differs between them.",
    "alternative": "An alternative has two ways or more, each with a name, of one shape.",
    # as a program runs
    "run-sizes": "Arrays have the shapes that are declared, with one length for each name.",
    "run-bounds": "Elements that are read or written exist.",
    "run-division": "Integers are divided without a remainder.",
    "run-empty": "The least and the greatest of nothing is that of floating-point numbers; no other exists.",
    "run-shape": "Shapes fit each other when their lengths are known.",
    "run-endless": "A `while` ends.",
    "run-undefined": "Elements of an `empty` tensor, of Shared and of Register are written before they are read.",
    "run-race": "Threads do not touch an element that another one writes between two calls of `sync`.",
    "run-alternative": "All ways of an alternative compute the same.",
}
"""The rules whose violation is always an error."""

ADVICE: Final = {
    "name-shadowed": "An inner name hides one outside, as the language allows.",
    "lenient-shape": "A shape is a list; a single number is taken for a list of one.",
}
"""The rules for texts that are allowed and probably not meant."""

ALL: Final = RULES | ADVICE
