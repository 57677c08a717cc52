"""Skeletons: kernels written whole from a plan, one room a strategy.

A skeleton is a frozen *plan* (``plan.py``), which says what a kernel is made of and what it takes of a device, and a
function (``write.py``) that writes the kernel of a plan in place of the instructions of a match.  Skeletons use the moves
of :mod:`feinsum.rewrites`, never the reverse; they share ``common`` and ``nvidia`` and know nothing of each other.
"""
