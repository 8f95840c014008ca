"""Reduces a problem before it is solved, and finds the classes that every program must contain."""
