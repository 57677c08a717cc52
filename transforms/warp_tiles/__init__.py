"""Operators of discontinuous-Galerkin methods on matrix units."""
