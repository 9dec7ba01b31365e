"""Language models: importing, scheduling, computing and sampling of text."""
