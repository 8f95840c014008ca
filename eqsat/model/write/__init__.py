"""Parts that files need and models in memory do not: bodies of eqsat's functions, missing operators, text."""
