"""Errors of the PTX compiler: each carries the CUresult the driver answers with."""

from __future__ import annotations

INVALID_PTX = 218
UNSUPPORTED_PTX_VERSION = 222
NOT_SUPPORTED = 801
UNKNOWN = 999


class PtxError(Exception):
    """PTX that cannot be used. `result` is a CUresult; the message is one line, for the log."""

    def __init__(self, message: str, result: int = INVALID_PTX) -> None:
        super().__init__(" ".join(message.split()))
        self.result = result


class UnsupportedInstruction(PtxError):
    """Valid PTX that this compiler does not implement: CUDA_ERROR_NOT_SUPPORTED."""

    def __init__(self, kernel: str, instruction: str, line: int, reason: str = "") -> None:
        detail = f": {reason}" if reason else ""
        super().__init__(f"{kernel}: line {line}: unsupported instruction `{instruction}`{detail}", NOT_SUPPORTED)
        self.kernel, self.instruction, self.line = kernel, instruction, line


class InternalError(PtxError):
    """A mistake of this compiler, never of the image: CUDA_ERROR_UNKNOWN. `where` is the pass or the instruction."""

    def __init__(self, kernel: str, where: str, error: BaseException) -> None:
        what = f"{type(error).__name__}: {error}".strip().rstrip(":")
        super().__init__(f"{kernel}: internal compiler error at {where}: {what[:300]}", UNKNOWN)
        self.kernel, self.where = kernel, where
