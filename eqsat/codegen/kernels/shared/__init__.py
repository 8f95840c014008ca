"""What kernels of several kinds build on: the registry, the choice of tiles, vector functions as C text."""
