"""Targets: what a device runs, what it costs, and why it refuses an operator."""
