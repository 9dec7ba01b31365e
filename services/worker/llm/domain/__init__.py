"""What the engine decides: pure, without clock, event loop, runtime or messages."""
