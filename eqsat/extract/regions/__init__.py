"""Fewest regions for a program whose nodes and targets are fixed."""
