"""A steady load, what is broken under it, and what callers saw of each failure."""
