"""What NVIDIA devices can do beyond OpenCL C, as inline PTX: matrix units and asynchronous copies."""
