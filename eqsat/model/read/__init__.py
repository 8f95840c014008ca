"""What becomes of a file before its types are known: reading, upgrading to the pinned opset, tidying up."""
