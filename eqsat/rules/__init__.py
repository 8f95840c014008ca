"""The language of rules and targets: reading, checking, printing."""
