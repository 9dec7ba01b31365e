"""Builders of the resources that Envoy gets."""
