"""The canonical form of a batched einsum: equal keys exactly for einsums that differ in names and order alone.

Two batched einsums are isomorphic if renaming arrays, indices and long axes and reordering operands and rows (and so
outputs) turns one into the other.  The axes of every array and output keep their order.  The canonical form is found in
three steps, each of which keeps all information up to isomorphism:

    rows ──collapse──▶ classes of rows ──label──▶ one order of operands and classes ──spell──▶ key

An array that stands in a single row is described by its type and its operands; rows equal after that are one class with
a multiplicity (:mod:`~feinsum.canonicalization.classes`).  The rest is a coloured graph, which a graph library labels
canonically (:mod:`~feinsum.canonicalization.labelling`).  Reading the graph in that order gives a text, the key
(:mod:`~feinsum.canonicalization.form`).
"""

from __future__ import annotations

from feinsum.canonicalization.canonical import CanonicalEinsum, canonicalize_einsum, is_isomorphic, isomorphism
from feinsum.canonicalization.form import is_key, parse_key
from feinsum.canonicalization.renaming import Renaming

__all__ = ["CanonicalEinsum", "Renaming", "canonicalize_einsum", "is_isomorphic", "is_key", "isomorphism", "parse_key"]
