"""Candidates: which configuration to take for an einsum on a device, best first.

The :mod:`ladder <feinsum.candidates.ladder>` asks, in this order, records of the einsum (``records``), records of other
einsums whose configurations carry over (``transfer``), chains whose steps have records of their own (``composed``), and the
cost model (``predicted``); ``origin`` tells where a kernel comes from.
"""
