"""Simpler control flow, by passes that need no search: equal branches, loops that count, what no round changes."""
