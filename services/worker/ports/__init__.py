"""What the worker's drivers need from outside, as small Protocols."""
