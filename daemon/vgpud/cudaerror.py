"""The CUresult codes a refusal carries. A program sees them as cuInit's result: they tell causes apart."""

from __future__ import annotations

from enum import IntEnum


class CudaError(IntEnum):
    """Names and numbers as in the CUDA driver API."""

    INVALID_VALUE = 1  # the client broke the control protocol
    NO_DEVICE = 100  # nothing in the inventory
    OPERATING_SYSTEM = 304  # no worker could be started
    NOT_PERMITTED = 800  # identity or token
    SYSTEM_NOT_READY = 802  # a limit is reached or vgpud is stopping: try again later
    SYSTEM_DRIVER_MISMATCH = 803  # no protocol version in common
