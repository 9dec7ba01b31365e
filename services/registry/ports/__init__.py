"""What the registry needs from the outside, as small protocols."""
