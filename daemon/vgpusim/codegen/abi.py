"""Offsets of daemon/vgpusim/device/vgx_sim_abi.h, as the generated code uses them.

tests/vgpusim/codegen/test_memory.py compares the two."""

VERSION = 13

LAUNCH_PARAMS = 0
LAUNCH_GRID = 32
LAUNCH_SHARED_STATIC = 56
LAUNCH_SHARED_DYNAMIC = 60
LAUNCH_SYMBOLS = 64
LAUNCH_SERVICES = 80
LAUNCH_ID = 88
LAUNCH_WORKSPACE = 96

THREAD_SHARED = 0
THREAD_FRAMES = 8
THREAD_SM = 16
THREAD_CTA = 24
THREAD_WARP = 36
THREAD_LOCAL = 40
THREAD_COUNTERS = 48
THREAD_KNOWN = 56  # KNOWN_COUNT of KNOWN_NBYTES
THREAD_KNOWN_SHARED = 312

KNOWN_COUNT = 8
KNOWN_BEGIN = 0
KNOWN_END = 8
KNOWN_GENERATION = 16
KNOWN_SEEN = 24
KNOWN_NBYTES = 32

SHARED_ALIGN = 1024  # of each CTA's shared memory in a resident launch: swizzled layouts repeat every 1,024 bytes

SERVICE_VPRINTF = 0
SERVICE_ASSERTFAIL = 8
SERVICE_FAIL = 16
NO_THREAD = (("ptr", "null"), ("i32", "0"))  # SERVICE_FAIL's arguments for a failure of no single thread
SERVICE_MALLOC = 24
SERVICE_FREE = 32
SERVICE_BAD_ACCESS = 40
SERVICE_TEXTURE = 48
SERVICE_OUTSIDE = 56
SERVICE_ACCESS = 64
SERVICE_SYNC = 72
SERVICE_DEVICE_RUNTIME = 88
SERVICE_ROW = 96
SERVICE_GROUP = 104

REACH_NBITS = 45  # kernels reach addresses whose bits from this one on are 1: vgx_sim_reach.h

WARP = 32  # lanes
