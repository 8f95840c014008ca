"""Steps before types are known: reading a file, upgrading to the pinned opset, tidying up."""
