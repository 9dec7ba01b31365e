"""Metering's stores, files and connections to the outside."""
