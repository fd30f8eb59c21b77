"""NVML: every function NVIDIA's library of release 580 exports, once. `protocol.gen.nvml` describes the entries'
format.
"""

MODULES = ("struct", "library", "device", "unserved", "virtual")
