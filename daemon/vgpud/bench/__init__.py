"""`vgpu bench`: the same work on the driver itself and through vgpud, over each channel, in one run.

For each set of work (`work.py`, and the C program for driver calls) a process on each side stays alive, and short
windows of the same work alternate between them, so that a drift of the machine's speed affects all sides equally.
"""
