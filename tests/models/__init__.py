"""Small ONNX models for tests, made when needed: each function gives the bytes of one."""
