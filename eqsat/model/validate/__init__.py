"""Whether a model is one: its nodes and tensors against the standard, and what the libraries below cannot survive."""
