"""Where the nodes of a result come from: the nodes of the input, and every rule on the way."""
