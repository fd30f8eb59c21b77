"""The CUresult codes that vgpud itself answers. A refusal's code is what the program's cuInit returns, so each
cause has its own."""

from __future__ import annotations

from enum import IntEnum


class CudaError(IntEnum):
    """Names and numbers as in the CUDA driver API."""

    SUCCESS = 0
    INVALID_VALUE = 1  # the client broke the control protocol; a handle names nothing that it may open
    OUT_OF_MEMORY = 2  # a tenant shares too much
    DEVICE_UNAVAILABLE = 46  # the device is out of service
    NO_DEVICE = 100  # nothing in the inventory
    INVALID_CONTEXT = 201  # the session opens a handle that it exported itself
    OPERATING_SYSTEM = 304  # no worker could be started
    NOT_PERMITTED = 800  # the client's identity or token is refused
    SYSTEM_NOT_READY = 802  # a limit is reached or vgpud is stopping: try again later
    SYSTEM_DRIVER_MISMATCH = 803  # no protocol version in common
