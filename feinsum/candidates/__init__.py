"""Candidates: which configuration to take for an einsum on a device, best first.

The :mod:`ladder <feinsum.candidates.ladder>` asks, in this order, what was measured (``records``), what was measured
elsewhere and carries over (``transfer``), what the steps of a chain with records of their own add up to (``composed``), and
what the cost model expects (``predicted``); ``origin`` tells where a kernel comes from.
"""
