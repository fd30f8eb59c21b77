"""No compiler of its own: the targets of `driver` are those of Triton's NVIDIA backend, which compiles for them."""

from triton.backends.nvidia import compiler as nvidia


class NoCompiler(nvidia.CUDABackend):
    @staticmethod
    def supports_target(target):
        return False
