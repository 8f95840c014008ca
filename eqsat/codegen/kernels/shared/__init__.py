"""The common basis of several kinds of kernels: the registry, the choice of tiles, vector functions as C text."""
