"""Triton's NVIDIA backend with a target that its LLVM supports, for devices that are newer than that LLVM.

Triton compiles for the compute capability that the driver reports, and no variable changes the target that its LLVM
gets. Triton reads the entry point of this package, which `vgpu run` puts on PYTHONPATH, and uses the backend that
TRITON_DEFAULT_BACKEND names.
"""
