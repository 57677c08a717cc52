"""Three small languages around einsums, each a package that reads, checks, prints, interprets and builds its programs.

They share how a text becomes tokens (:mod:`.scanning`), diagnostics with lines, columns and the rule that was broken
(:mod:`.diagnostics`), and what a call is (:mod:`.calling`).  What they need of OpenCL is in :mod:`feinsum.compile`.
"""
