"""Emitting: steps become kernels in OpenCL C."""
