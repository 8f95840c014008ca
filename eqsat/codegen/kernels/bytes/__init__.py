"""Kernels of 8-bit integers in vectors, to the bit of the numpy executor."""
