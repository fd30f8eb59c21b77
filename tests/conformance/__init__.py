"""The same checks on the driver itself, remoted to it, and on the simulator: where do they differ?

`python -m tests.conformance --libcuda PATH [--native] [--remoted] [--simulated]`; see docs/bench.md.
"""
