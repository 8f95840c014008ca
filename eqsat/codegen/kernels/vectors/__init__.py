"""Kernels of float32 in vectors, written once for all instruction sets."""
