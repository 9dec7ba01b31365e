"""What the worker decides, without transport, runtime, event loop or clock."""
