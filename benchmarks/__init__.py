"""Measurements that anyone can run again; each module prints its own command in `--help`."""
