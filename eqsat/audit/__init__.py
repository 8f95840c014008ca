"""The e-graph as its own oracle: all expressions that it holds to be equal are computed and compared.

Optimizing executes one program, the chosen one. Here each e-node of a saturated e-graph is computed from the values of
its operands' classes, and all e-nodes of a class must agree. What does not is reported with the rule that made it and
the shortest chain of unions that led from a value that is right to one that is wrong.
"""
