"""Metering's gRPC services: messages in, use cases, messages out."""
