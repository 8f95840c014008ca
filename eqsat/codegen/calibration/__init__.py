"""Measuring the machine: probes in generated C, and the numbers of the host's file that fit them."""
