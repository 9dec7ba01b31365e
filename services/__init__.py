"""The platform's services: control plane, workers, accounting and command line."""
