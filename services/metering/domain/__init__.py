"""What metering knows and decides: plain values, no input or output."""
