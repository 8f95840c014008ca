"""Every shipped rule is executed on random instances; wrong rules must be caught."""
