"""Targets: the operators that a device runs, their costs, and the reasons why it refuses an operator."""
