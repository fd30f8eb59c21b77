"""PyTorch on vgpu's simulated GPUs: ATen's CPU kernels behind the CUDA dispatch key.

Torch loads this package by its entry point `torch.backends` at the end of `import torch`. It changes nothing unless the
program uses CUDA and the device is simulated.
"""

from __future__ import annotations

import os

__version__ = "0.1.0"


def autoload() -> None:
    """Install the simulation at the first use of CUDA. Never raises, because importing torch would fail."""
    if os.environ.get("VGPU_TORCH") == "0":
        return
    try:
        import torch

        if torch.version.cuda is None:
            return
        from .install import install_or_explain

        # Installed late, because torch registers its own kernels after the entry points have run, and the last
        # registration counts.
        torch.cuda._lazy_call(install_or_explain)
        # Runs first, because torch's checks warn that it has no machine code for some simulated devices.
        queued = torch.cuda._queued_calls
        if queued and queued[-1][0] is install_or_explain:
            queued.insert(0, queued.pop())
    except Exception as error:
        from .notice import explain

        explain(f"PyTorch is left as it is: {type(error).__name__}: {error}")
