"""Validates models: nodes and tensors against the standard, and inputs that the libraries below cannot survive."""
