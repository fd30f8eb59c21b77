"""The names by which programs ask for CUDA's libraries."""

from __future__ import annotations

DRIVER = "libcuda.so.1"
NVML = "libnvidia-ml.so.1"
RUNTIMES = ("libcudart.so.11.0", "libcudart.so.12", "libcudart.so.13")
DEVELOPMENT = ("libcuda.so", "libnvidia-ml.so")  # names for linking; some programs open them
NAMES = (DRIVER, NVML, *DEVELOPMENT, *RUNTIMES)
