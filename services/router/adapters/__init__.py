"""Clients of the registry and of discovery."""
