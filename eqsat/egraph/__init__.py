"""The e-graph: models as terms, rules as rewrites, saturation."""
