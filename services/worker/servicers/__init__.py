"""The worker's gRPC services: messages in, domain calls, messages out."""
