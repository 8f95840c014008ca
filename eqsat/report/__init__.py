"""What an optimization did, said to people (table, page) and to programs (JSON)."""
