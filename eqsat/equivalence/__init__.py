"""Proves that two models compute the same, or shows where they differ."""
