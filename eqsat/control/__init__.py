"""The bodies of If, Loop and Scan: programs of their own, which are optimized and placed like the main graph."""
