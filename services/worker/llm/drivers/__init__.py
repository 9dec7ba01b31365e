"""What moves the engine: its thread, and the way in and out of it."""
