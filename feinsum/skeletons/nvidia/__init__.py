"""Features of NVIDIA devices beyond OpenCL C, as inline PTX: matrix units and asynchronous copies."""
