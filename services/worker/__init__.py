"""The worker: loads what its pool is assigned and answers inference."""
