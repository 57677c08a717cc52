"""Builds of kernels: a configuration of a space becomes an executable for a device, or comes from the disk cache."""
