"""The registry: models, versions, aliases, endpoints, placements, and the leases of live workers."""
