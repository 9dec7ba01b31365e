"""What metering needs from outside, as small Protocols."""
