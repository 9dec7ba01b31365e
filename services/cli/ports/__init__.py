"""What the command line's parts need from each other."""
