"""The edge as a process of its own: Envoy with a bootstrap made of settings, drained when it is asked to stop."""
