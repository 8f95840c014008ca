"""The stages that a model goes through: pure functions from one frozen value to the next.

    load -> saturate -> price -> extract -> assemble -> export

Each stage is one file. :mod:`eqsat.search` composes them for ``optimize``; :mod:`eqsat.quantization` extracts from the
same e-graph within a budget of noise; :mod:`eqsat.codegen.select` extracts kernels and layouts.
"""
