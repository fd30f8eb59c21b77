"""NVML: every function NVIDIA's library of release 580 exports, once. `protocol.gen.nvml` says how an entry reads."""

MODULES = ("struct", "library", "device", "unserved", "virtual")
