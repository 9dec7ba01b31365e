"""Measurements that anyone can run again: each program says in its docstring how."""
