"""The gRPC services that the router offers."""
