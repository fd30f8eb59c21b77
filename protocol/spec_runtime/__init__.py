"""The CUDA runtime's functions, one entry each: parameters, per-major differences, and the driver calls behind them.

Enumerations are `int` here and handles have the driver's types; both are the same to the caller. Sources: CUDA Runtime
API 11.8, 12.8 and 13.0 (signatures); the driver calls are those NVIDIA's runtime was seen to make.
"""

MODULES = ("driver", "device", "stream", "memory", "copy", "kernel", "graph", "ipc")
