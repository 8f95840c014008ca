"""Operators by family: each file declares the operators of one family, with their numpy kernels and all facts about
them.
"""
