"""The router: Envoy's xDS control plane."""
