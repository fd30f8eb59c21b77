"""The PyPI packages that the programs of this folder need."""

REQUIREMENTS = {
    "cupy": ("cupy-cuda13x[ctk]==14.2.*", "numpy"),
    "jax": ("jax[cuda13]==0.10.2", "numpy"),
    "triton": ("triton==3.8.*", "torch==2.14.*", "numpy"),
    "xgboost": ("xgboost-cu13==3.2.*", "numpy", "scikit-learn"),
    "tensorflow": ("tensorflow[and-cuda]==2.21.*",),
    "warp": ("warp-lang==1.*", "numpy"),
}
CUBLAS_WITH_PTX = (
    "nvidia-cublas==13.8.*",
    "numpy",
)  # later versions have half-precision products for unknown devices only in Tile IR
CUDNN = ("nvidia-cudnn-cu13==9.28.*",)
NCCL = ("nvidia-nccl-cu13==2.32.*", "nvidia-cuda-runtime==13.*", "numpy")
NPP = ("nvidia-npp==13.*",)
NUMBA = (
    "numba-cuda[cu13]==0.30.*",
    "numpy<2.5",  # which has row_stack
    *("pytest", "pytest-timeout", "pytest-benchmark", "filecheck", "ml-dtypes", "cffi", "psutil"),  # of its tests
)
TINYGRAD = ("tinygrad==0.13.0", "numpy", "nvidia-cuda-nvrtc==13.0.*", "pytest", "pytest-timeout", "hypothesis")
