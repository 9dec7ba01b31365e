"""The ports against real things: memory, SQLite, disk, ONNX, clocks."""
