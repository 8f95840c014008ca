"""If, Loop and Scan as C: their bodies are programs of their own, called from functions that branch and repeat."""
