"""JAX starts its CUDA backend only where one of NVIDIA's device files exists, and computes on the CPU elsewhere,
without a word. A guest has none of them. JAX imports this as one of its plugins, before it looks.
"""

_EXISTS = "/dev/null"


def initialize() -> None:
    """Add a file that exists to those that JAX looks for (jax/_src/hardware_utils.py of 0.10)."""
    try:
        from jax._src import hardware_utils
    except ImportError:
        return
    files = getattr(hardware_utils, "_NVIDIA_GPU_DEVICES", None)
    if isinstance(files, list) and _EXISTS not in files:
        files.append(_EXISTS)
