"""The rules of the immediate language, by the ids under which diagnostics name them.

Each says what holds in a program.  Those under `LENIENT` are errors in strict mode and warnings otherwise, as the document
itself does not keep them; those under `ADVICE` are warnings always.
"""

from __future__ import annotations

from typing import Final

RULES: Final = {
    # text and names
    "syntax": "The text follows the grammar.",
    "integer-range": "Integer constants lie in [-2^63 + 1, 2^63 - 1].",
    "float-range": "Floating-point constants are finite in double precision.",
    "constant-form": "Alpha and beta are floating-point constants: ``1.0``, not ``1``.",
    "constant-type": "Alpha and beta are values of the type of the tensors; to a floating-point type they are rounded.",
    "name-undefined": "A name is defined before it is used, in the same region or in one around it.",
    "name-redefined": "A name that can be seen is not defined again.",
    "function-redefined": "The functions of a program have different names.",
    "nesting-depth": "Loops are nested 64 deep at most.",
    # types
    "type-void": "Nothing has the type void.",
    "memref-length": "Lengths are at least 1, and a memref spans less than 2^63 elements.",
    "stride-count": "A memref has a stride for each index.",
    "stride-order": "Strides are at least 1, and no smaller than the previous index's stride times its length.",
    "distance": "The distance of a group is not negative.",
    "item-overlap": "Items of a group that is written do not overlap: their distance is at least their extent.",
    # index maps
    "map-syntax": "Indices are letters; ``[k]`` and ``(jn)`` are closed and not nested; ``_`` stands alone.",
    "map-operands": "A map has as many operands as its instruction reads.",
    "map-repeated": "An operand has an index once.",
    "map-order": "An operand has as many indices as its memref.",
    "map-lengths": "An index has the same length in all operands.",
    "map-modifiers": "Only `log` has indices in brackets or parentheses.",
    "axpby-indices": "Both operands of an `axpby` have the same indices.",
    "log-lonely": "An index of A or of B is in another operand of a `log`, too.",
    "log-output": "An index of C is in A or in B.",
    "product-indices": "C of a `product` has the indices of A and those of B, and no others.",
    "sum-indices": "An index of B of a `sum` is one of A.",
    "loop-everywhere": "An index that is looped over is marked so in every operand that has it.",
    "group-everywhere": "Indices that are treated as one are so in every operand that has one of them, in the same order.",
    "group-class": "Indices that are treated as one are all m, all n or all k.",
    # names and what they stand for
    "operand-memref": "Tensors that are read or changed are memrefs; an item of a group comes from `get_work_item`.",
    "operand-type": "The type behind the colon is that of the operand.",
    "element-type": "All tensors of an instruction have the same type of number.",
    "overlap": "The result of an instruction does not overlap what it reads.",
    "shared-write": "What work-items write is their own: a part of an item of a group or of an alloca.",
    "item-race": "A group that is written is fetched with one offset, or work-items would meet in an item.",
    "alloca-unwritten": "Elements of an alloca are written before they are read.",
    "alloca-type": "An alloca is a memref.",
    "work-item-operand": "`get_work_item` fetches from a group.",
    "work-item-offset": "An offset is an integer, and the type in front of it is its type.",
    "subview-count": "A subview has an entry for each index.",
    "subview-range": "A slice is 0 <= from < to <= length, and a number below the length and not negative.",
    "subview-index": "An index of a subview is an integer that stays inside, and the type in front of it is its type.",
    "subview-type": "A subview has the type that follows from its entries.",
    "for-type": "A loop variable is an integer.",
    "for-range": "All values of a loop variable are of its type.",
    "lifetime-alloca": "A `lifetime_stop` ends an alloca of the same region.",
    "lifetime-use": "Neither an alloca nor a view of it is used behind its `lifetime_stop`.",
}
"""The rules whose violation is always an error."""

LENIENT: Final = {
    "lenient-type": "The type behind the colon is the operand's; of lengths in another order, that counts.",
    "lenient-axpby": "`axpby` has two constants, alpha and beta; of one alone, beta is 1.",
}
"""Where the document's own sample or grammar departs from its text."""

ADVICE: Final = {
    "group-layout": "Indices that are treated as one lie in memory as one; where they do not, the group means nothing.",
    "parameter-unused": "A floating-point argument is of no use: there is no instruction that takes one.",
    "loop-empty": "A loop from a to b has no trip where a >= b.",
}
"""The rules for texts that are allowed and probably not meant."""

SCHEDULES: Final = {
    "schedule": "Instructions of a schedule take whole tensors once, have alpha = 1 and beta = 0, and compute the einsum.",
}
"""The rules of texts that are taken for schedules."""

WAYS_OUT: Final = {
    "float-range": "the greatest number is 1.7976931348623157e+308",
    "constant-type": "integers are written like 2.0, unsigned ones have no sign, and f32 ends at 3.4028235e+38",
    "nesting-depth": "what a loop does to independent slices, an index of the map does, too",
    "map-syntax": "leave it out, or write letters, [k], (jn) or _",
    "map-operands": "axpby and sum have maps like {ij to i}, log and product like {ik, kj to ij}",
    "map-repeated": "give the second one a letter of its own",
    "map-order": "a memref<f64x4x5> has two, such as ij",
    "map-lengths": "give one of them a letter of its own, or read a subview",
    "axpby-indices": "`sum` leaves indices out",
    "log-lonely": "sum over it first: `sum`",
    "log-output": "leave it out, or read a tensor that has it",
    "product-indices": "`log` sums, and a product has all indices that it reads and no others",
    "sum-indices": "`product` with a tensor of that index spreads another one along it",
    "group-everywhere": "parentheses are around them in every operand, or in none",
    "group-class": "without parentheses each is an index of its own",
    "element-type": "no instruction converts numbers: declare all of one type",
    "overlap": "let the result be an alloca, and copy that",
    "shared-write": "pass a group, and write to its item",
    "item-race": "fetch it once, and take subviews of that",
    "alloca-unwritten": "an instruction with beta = 0.0 writes without reading",
    "work-item-operand": "a memref is the same for all work-items, and is read as it is",
    "subview-count": "`:` is all of an index",
    "subview-range": "positions are counted from 0, and a slice from:to excludes `to`",
    "lifetime-alloca": "leave it out; the memory of an alloca is freed at the end of its region",
    "lifetime-use": "move `lifetime_stop` behind the last use; one is enough",
}
"""The advice where a rule is broken, unless the place has its own: `write X`, where X replaces the wrong text."""

ALL: Final = RULES | LENIENT | ADVICE | SCHEDULES
