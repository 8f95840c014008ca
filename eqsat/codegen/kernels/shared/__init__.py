"""What kernels of more than one kind build on: the registry, the choice of tiles, vector functions as C text."""
