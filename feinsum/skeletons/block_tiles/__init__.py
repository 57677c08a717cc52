"""Block tiles: contractions of two tensors by work-groups, a block of the result to each, its operands in local memory."""
