"""The demo: real models, pushed, deployed, called, chatted with and shifted live."""
