"""Runs the same checks natively on NVIDIA's driver, remoted, and on the simulator, and shows where the results differ.

`python -m tests.conformance --libcuda PATH [--native] [--remoted] [--simulated]`; see docs/bench.md.
"""
