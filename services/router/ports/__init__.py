"""What the drivers need from the outside."""
