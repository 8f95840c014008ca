"""The safety net: random graphs whose every extraction must compute what the graph computes."""
