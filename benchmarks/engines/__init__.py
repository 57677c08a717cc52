"""Feinsum and its peers behind one interface, each in a process of its own."""
