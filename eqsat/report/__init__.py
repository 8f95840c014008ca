"""Reports what an optimization did, for people (table, page) and for programs (JSON)."""
