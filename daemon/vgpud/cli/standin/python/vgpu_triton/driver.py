"""The driver of Triton's NVIDIA backend; only the architecture to compile for differs."""

import os
import sys

from triton.backends.compiler import GPUTarget
from triton.backends.nvidia import driver as nvidia

NEWEST_KNOWN = 121
ARCHITECTURE = 89  # without wgmma and tensor memory, which the simulator does not have


class VgpuDriver(nvidia.CudaDriver):  # the only class of this module that Triton may find
    def get_current_target(self):
        target = super().get_current_target()
        return target if target.arch <= NEWEST_KNOWN else GPUTarget(target.backend, ARCHITECTURE, target.warp_size)

    @staticmethod
    def is_active():
        """False in a Triton that does not read TRITON_DEFAULT_BACKEND: such a Triton asks all backends, and expects
        exactly one to be active.
        """
        choose = sys.modules["triton.runtime.driver"]._create_driver
        return (
            os.environ.get("TRITON_DEFAULT_BACKEND") == "vgpu"
            and "TRITON_DEFAULT_BACKEND" in choose.__code__.co_consts
            and nvidia.CudaDriver.is_active()
        )
