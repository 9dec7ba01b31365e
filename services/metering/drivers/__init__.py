"""Use cases of metering and its background work."""
