"""Instructions that vendors add to OpenCL C, as loopy's: matrix units and asynchronous copies.

Their text and their fragments are data of :mod:`feinsum.devices.vendors`; skeletons are written for fragments of 16 rows.
"""
