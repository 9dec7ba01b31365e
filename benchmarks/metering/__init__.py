"""How fast metering takes usage, and how fast it answers: `python -m benchmarks.metering --help`."""
