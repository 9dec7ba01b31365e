"""Records and rules of the registry: values only, no transport, store or clock."""
