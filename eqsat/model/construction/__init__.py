"""The implementation of the builder: operators on tensors, Python values as operands, subgraphs, protobuf."""
