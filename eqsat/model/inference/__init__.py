"""Types of values: of a node, of a body, of a whole model; symbols in shapes, and values that follow from shapes."""
