"""JAX starts its CUDA backend only where one of NVIDIA's device files exists; elsewhere it computes on the CPU without
a message. A guest has none of these files. JAX imports this package as a plugin, before it looks for the files.
"""

_EXISTS = "/dev/null"


def initialize() -> None:
    """Add an existing file to the device files that JAX looks for (jax/_src/hardware_utils.py of 0.10)."""
    try:
        from jax._src import hardware_utils
    except ImportError:
        return
    files = getattr(hardware_utils, "_NVIDIA_GPU_DEVICES", None)
    if isinstance(files, list) and _EXISTS not in files:
        files.append(_EXISTS)
