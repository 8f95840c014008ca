"""Graphs by hand, behind the builder: operators on tensors, Python values as operands, subgraphs, protobuf."""
