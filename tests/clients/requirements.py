"""What the frameworks of these tests need from PyPI, and no more: each leaves out libraries of half a gigabyte."""

CUPY = (
    "cupy-cuda13x==14.2.*",
    "numpy",
    "nvidia-cuda-nvrtc==13.0.*",
    "nvidia-cuda-runtime==13.0.*",
    "nvidia-curand==10.4.*",
)
JAX = (
    "jax==0.10.2",
    "jax-cuda13-plugin==0.10.2",
    "jax-cuda13-pjrt==0.10.2",
    "nvidia-cudnn-cu13==9.28.*",  # XLA compiles nothing without it
    "nvidia-nvvm==13.5.*",  # libdevice
    "numpy",
)
TRITON = ("triton==3.8.*", "numpy")  # it launches without torch
