"""Operators by family: each file declares those of one, with their numpy kernels and all else that is known of them."""
