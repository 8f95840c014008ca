"""The exact search: extraction as an integer program, and the rows that are added to it."""
