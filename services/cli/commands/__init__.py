"""The commands as they are typed; what they do is loaded when one runs."""
