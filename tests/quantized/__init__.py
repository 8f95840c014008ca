"""Quantized networks: the exact rules, both spellings, and the targets that run them."""
