"""Why a function of the driver has no body: it answers NOT_SUPPORTED. Names, or their beginnings with a `*`.

The generator refuses an export that has neither a body nor a reason. A reason for a function that has got a body is
ignored.
"""

REASONS: tuple[tuple[str, str], ...] = (
    (
        "A guest has no display of this GPU: OpenGL, EGL and VDPAU of the program's own run elsewhere.",
        "cuGL* cuEGL* cuGraphics* cuVDPAU*",
    ),
    (
        "NvSci's synchronization is of NVIDIA's embedded systems, and not remoted.",
        "cuDeviceGetNvSciSyncAttributes",
    ),
    (
        "A checkpoint stops the process that has the driver, which is the host's worker, not the program.",
        "cuCheckpoint*",
    ),
    (
        "Multicast objects are the host's and can disturb its other users; "
        "CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED is 0.",
        "cuMulticast*",
    ),
    (
        "Newer than the driver that we answer as (580).",
        "cuDevSmResourceSplit",
    ),
    ("In no document: exported by the driver alone.", "cuMemGetAttribute*"),
)
