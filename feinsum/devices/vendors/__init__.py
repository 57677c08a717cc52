"""Vendors: what the devices of one maker can do beyond OpenCL C, as data, and what is peculiar to OpenCL runtimes.

:mod:`feinsum.devices.vendors.known_vendors` lists the vendors, :mod:`feinsum.devices.vendors.runtimes` the runtimes, which
``import feinsum`` needs without the vendors.
"""
