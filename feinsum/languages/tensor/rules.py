"""The rules of the tensor language, by the ids under which diagnostics name them.

Each says what holds in a program.  Those under `LENIENT` are errors in strict mode and warnings otherwise, as the samples
of the reference themselves do not keep them; those under `ADVICE` are warnings always.
"""

from __future__ import annotations

from typing import Final

RULES: Final = {
    # text and names
    "syntax": "The text follows the grammar.",
    "integer-range": "Integer constants lie in [-2^63 + 1, 2^63 - 1].",
    "float-range": "Floating-point constants are finite in double precision.",
    "name-undefined": "A name is defined before it is used, in the same region or in one around it.",
    "name-redefined": "A name that can be seen is not defined again; results can be seen behind their instruction.",
    "function-redefined": "The functions of a program have different names.",
    "modifiers": "An instruction has the modifiers of its definition: as many transposes, and each flag once at most.",
    "operand-count": "An instruction has as many operands as its definition says.",
    "result-count": "An instruction has a name in front of ``=`` for each of its results.",
    "immediate": "Operands are names; numbers stand for themselves only in `constant`, shapes, offsets and sizes.",
    # types
    "type-void": "Nothing has the type void.",
    "memref-size": "Sizes of memrefs and groups are not negative.",
    "stride-count": "A memref has a stride for each mode.",
    "stride-order": "Strides are at least 1, and no smaller than the previous mode's stride times its size.",
    "coopmatrix-size": "A coopmatrix has at least one row and one column.",
    # functions and attributes
    "parameter-type": "Parameters are scalars, booleans, groups, and memrefs in global memory.",
    "parameter-attribute": "Only memrefs and groups have attributes: alignment, shape_gcd and stride_gcd.",
    "attribute-type": "An attribute has the type that the reference gives it.",
    "attribute-duplicate": "A dictionary names an attribute once.",
    "alignment": "An alignment is a positive multiple of the size of an element, and that of an alloca 128 at most.",
    "gcd": "Greatest common divisors are positive, one for each mode at most, and divide known sizes and strides.",
    "subgroup-size": "A sub-group size is positive.",
    "work-group-size": "A work-group has two positive sizes; the first is a multiple of the sub-group size.",
    # regions
    "nesting-collective": "Collective instructions stand in collective regions.",
    "nesting-depth": "Regions, and the arrays of attributes, are nested 64 deep at most.",
    "nesting-spmd": "SPMD instructions stand in SPMD regions.",
    "yield-place": "A yield is the last instruction of a region of `for` or `if`.",
    "yield-missing": "A region whose instruction has results ends with a yield.",
    "yield-values": "A yield has a value for each result, of its type.",
    "if-condition": "The condition of an `if` is a bool.",
    "if-else": "An `if` with results has an else.",
    "loop-type": "Loop variables have an integer type, and bounds and steps the same one.",
    "loop-lists": "The lists of a `foreach` are equally long.",
    "loop-carried": "What a loop carries is bool, scalar or coopmatrix, and begins with a value of that type.",
    "lifetime-alloca": "A lifetime_stop ends an alloca of the same region.",
    "lifetime-use": "Neither the alloca nor a view of it is used behind its lifetime_stop.",
    # linear algebra
    "alloca-type": "An alloca is a memref of known size in local memory.",
    "operand-memref": "The operands of linear algebra are memrefs, and their factors scalars.",
    "order": "Memrefs have the orders that the instruction is for.",
    "shape": "Shapes fit each other; an unknown size fits an unknown size only.",
    "cumsum-mode": "The mode of a cumsum is one of the memref's, from 0.",
    "promotion-alpha": "α ≼ the type of the product of the operands.",
    "promotion-operands": "The types of two factors have a common one: promote(A, B) does not fail.",
    "promotion-result": "The type of the operands ≼ the type of the result.",
    "promotion-beta": "β ≼ the type of the result.",
    "atomic-beta": "An atomic update has a constant β of 0 or 1.",
    # scalars
    "arith-type": "Arithmetic is for the types that its table lists.",
    "arith-operands": "The operands of arithmetic have the type of the result, save for abs, im and re of complex numbers.",
    "cast-type": "Casts go between scalars, or coopmatrices of equal shape and use.",
    "cast-complex": "A complex number is not cast to one that is not.",
    "cmp-type": "Comparisons are for scalars of one type, complex numbers only for equality.",
    "cmp-result": "A comparison gives a bool.",
    "constant-type": "A constant is written as its type demands: `1`, `1.0` or `[1.0,0.0]`.",
    "builtin-type": "A builtin has the type that its table lists.",
    "math-type": "Exponentials are of floating-point and complex numbers, and have the type of their operand.",
    # memory and views
    "index-type": "Indices, offsets and sizes are of type index.",
    "index-count": "There is an index for each mode, and one for a group.",
    "load-operand": "Loads are from memrefs and groups, stores and views of memrefs.",
    "load-type": "A load gives the element type of the memref, or the memref type of the group.",
    "store-type": "What is stored has the element type of the memref.",
    "size-mode": "The mode of a size is one of the memref's, and 0 for a group.",
    "view-element": "A view has the element type and the address space of its memref.",
    "view-mode": "The modes of a view exist.",
    "view-shape": "A view has the shape that follows from its bounds.",
    "view-stride": "A view has the strides of its memref, or ``?`` for them.",
    "expand-product": "The sizes of an expanded mode multiply to its size.",
    "fuse-stride": "Fused modes follow each other without gaps: a stride times its size is the next stride.",
    "subview-bounds": "Offsets and sizes of a subview are not negative.",
    # cooperative matrices and sub-groups
    "matrix-type": "Operands and results of cooperative instructions are coopmatrices, and memrefs of order 2.",
    "matrix-component": "Component types and element types fit each other.",
    "matrix-use": "The factors of a product are matrix_a and matrix_b, summand and result matrix_acc.",
    "matrix-shape": "The shapes of a product fit each other.",
    "subgroup-type": "Sub-group operations are on scalars, and give the type of their operand.",
    "subgroup-index": "The work-item of a broadcast is of type i32.",
    # while interpreting
    "run-bounds": "Elements that are loaded or stored exist.",
    "run-uniform": "What has to be the same in a sub-group is the same.",
    "run-arithmetic": "Integers are not divided by 0, and shifted by less than their width.",
    "run-view": "Sizes of modes that are expanded or fused fit as the program runs.",
    "run-loop": "The step of a loop is positive.",
}  # fmt: skip
"""The rules whose violation is an error."""

LENIENT: Final = {
    "lenient-builtin": "Builtins are written with ``builtin.`` in front.",
    "lenient-slice": "A slice has an offset; a colon alone is taken for the whole mode.",
    "lenient-space": "The memref of an alloca says ``local``; one that does not is taken as if it did.",
    "lenient-arrow": "The type of a result stands behind a colon; an arrow is taken for one.",
    "lenient-immediate": "Operands are names; a number in a comparison or as an index is taken for a constant.",
    "lenient-cmp": "A comparison is ``: bool``; the type of its operands is taken for that.",
    "lenient-hadamard": "`hadamard_product` is written in full.",
    "lenient-order": "Transposes stand in front of ``.atomic``.",
    "lenient-returns": "A list of types is not empty.",
}
"""Where the reference's own samples, or those of its implementation, depart from its grammar."""

ADVICE: Final = {
    "attribute-unused": "An attribute that means nothing here is ignored.",
    "constant-range": "An integer constant that its type does not hold is cut to its bits.",
    "promotion-inexact": "i32 ≼ c32 by the matrix of the reference, though not every value survives.",
    "collective-atomic-add": "An atomic addition outside of SPMD regions is done by every work-item.",
    "subview-outside": "A subview with known bounds stays within its memref.",
    "barrier-varying": "A barrier is met by all work-items, so it does not depend on values that differ between them.",
    "uniform": "What cooperative instructions and broadcasts need to be uniform does not differ between work-items.",
}
"""The rules whose violation is a warning: allowed, but probably not meant."""

ALL: Final = RULES | LENIENT | ADVICE
