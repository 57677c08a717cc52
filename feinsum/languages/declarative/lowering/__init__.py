"""Lowering: a program at given lengths becomes equations between arrays, and these steps that a device takes.

::

    tree --unfold--> equations --normalize--> equations --partition--> steps
          (terms)                (hoisted, fused)          (einsums, rows, flat kernels, scans)
"""
