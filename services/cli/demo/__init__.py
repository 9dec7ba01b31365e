"""The demo: two real models from installed packages, pushed, deployed, called and shifted live."""
