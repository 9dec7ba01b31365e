"""The supervisor and its children."""
