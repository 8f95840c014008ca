"""Quantization end to end: calibration, extraction within a budget, and the measured result."""
