"""What the engine needs of others, as small Protocols."""
