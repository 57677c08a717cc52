"""Chains of contractions with small operands on GPUs, a work-group for a block of them."""
