"""What the command line decides, without any input or output."""
