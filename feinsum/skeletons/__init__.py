"""Skeletons: kernels written whole from a plan, one room a strategy.

A skeleton is a frozen *plan* (``plan.py``), which describes a kernel and computes its local memory and registers, and a
function (``write.py``) that writes the kernel of a plan in place of the instructions of a match.  Skeletons use the moves
of :mod:`feinsum.rewrites`, never the reverse; they share ``common`` and ``instructions`` and do not import each other.
"""
