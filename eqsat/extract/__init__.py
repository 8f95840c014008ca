"""Extraction: the cheapest program of an e-graph, and the bound that proves how near it is to the optimum."""
