"""Has no compiler: Triton's NVIDIA backend compiles for the targets that `driver` returns."""

from triton.backends.nvidia import compiler as nvidia


class NoCompiler(nvidia.CUDABackend):
    @staticmethod
    def supports_target(target):
        return False
