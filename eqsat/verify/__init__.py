"""Executes a result against its input: as a whole, and piece by piece on values that reach every threshold."""
