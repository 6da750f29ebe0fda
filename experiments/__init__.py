"""What a researcher runs: scenarios, the live campus, the demo, benchmarks and reports. May import everything below.
Begin with `cli.py`."""
