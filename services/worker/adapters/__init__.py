"""Registry, discovery, ONNX Runtime, disk and metrics behind the worker's ports."""
