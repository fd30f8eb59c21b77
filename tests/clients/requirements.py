"""The PyPI packages that the frameworks of these tests need, without optional libraries of half a gigabyte each."""

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
    "nvidia-nvvm==13.5.*",  # for libdevice
    "numpy",
)
TRITON = ("triton==3.8.*", "numpy")  # Triton launches kernels without torch
# Without nvJitLink, so that PTX reaches the driver's linker.
NUMBA = (
    "numba-cuda==0.30.*",
    "cuda-bindings==13.*",
    "numpy",
    "nvidia-cuda-nvrtc==13.0.*",
    "nvidia-nvvm==13.0.*",
    "nvidia-cuda-runtime==13.0.*",
)
