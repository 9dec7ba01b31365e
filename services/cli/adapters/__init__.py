"""Clients of the edge, the terminal, files and processes of this machine."""
