"""Compilation: a transformed loopy kernel becomes a program (data), a program becomes an executable."""
