"""A fat binary with one PTX entry, as the compiler would embed it, and its registration by ctypes."""

import ctypes
import struct
from ctypes import c_char_p, c_size_t, c_void_p

WRAPPER_MAGIC, CONTAINER_MAGIC = 0x466243B1, 0xBA55ED50
KIND_PTX, FLAGS_64_BIT_LINUX = 1, 0x11
HEADER_NBYTES, ENTRY_NBYTES, OPTIONS_OFFSET = 16, 80, 64

PTX = """
.version 7.0
.target sm_70
.address_size 64
.visible .global .align 4 .u32 counter = 41;
.visible .const .align 4 .f32 factors[4];
.visible .entry scale(.param .u64 data, .param .u32 n, .param .f32 factor)
{
  .reg .pred %p; .reg .b32 %r<6>; .reg .f32 %f<4>; .reg .b64 %d<5>;
  .shared .align 4 .b8 unused[64];
  ld.param.u64 %d1, [data]; ld.param.u32 %r1, [n]; ld.param.f32 %f1, [factor];
  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;
  mad.lo.u32 %r5, %r2, %r3, %r4;
  setp.ge.u32 %p, %r5, %r1;
  @%p bra done;
  cvta.to.global.u64 %d2, %d1; mul.wide.u32 %d3, %r5, 4; add.u64 %d4, %d2, %d3;
  ld.global.f32 %f2, [%d4]; mul.f32 %f3, %f2, %f1; st.global.f32 [%d4], %f3;
  mov.u32 %r2, unused; st.shared.u32 [%r2], %r1;
done:
  ret;
}
.visible .entry bump(.param .u32 by)
{
  .reg .b32 %r<4>;
  ld.param.u32 %r1, [by]; ld.global.u32 %r2, [counter]; add.u32 %r3, %r2, %r1; st.global.u32 [counter], %r3;
  ret;
}
"""


def container(ptx: str = PTX, sm: int = 70) -> bytes:
    """A fat binary with one uncompressed PTX entry."""
    text = ptx.encode() + b"\0"
    text += b"\0" * (-len(text) % 8)
    # The driver follows the offset of the options without a check, so an empty options field must exist.
    options = struct.pack("<IIQ", OPTIONS_OFFSET + 8, 0, 0)
    entry = struct.pack(
        "<HHIQIIHHIIIQQQ",
        KIND_PTX, 0x101, ENTRY_NBYTES, len(text), 0, OPTIONS_OFFSET, 0, 7, sm, 0, 0, FLAGS_64_BIT_LINUX, 0, 0,
    )  # fmt: skip
    entry += options
    assert len(entry) == ENTRY_NBYTES
    return struct.pack("<IHHQ", CONTAINER_MAGIC, 1, HEADER_NBYTES, len(entry) + len(text)) + entry + text


class Registered:
    """What a compiled program registers before main: two kernels, a variable and a constant array."""

    def __init__(self, runtime: ctypes.CDLL, ptx: str = PTX) -> None:
        def call(name: str) -> ctypes._CFuncPtr:  # type: ignore[name-defined]  # a plain attribute would be mangled
            return getattr(runtime, f"__cuda{name}")

        self._unregister = call("UnregisterFatBinary")
        call("RegisterFatBinary").restype = c_void_p
        self.image = ctypes.create_string_buffer(container(ptx))
        address = ctypes.addressof(self.image)
        self.wrapper = ctypes.create_string_buffer(struct.pack("<IIQQ", WRAPPER_MAGIC, 1, address, 0))
        self.handle = c_void_p(call("RegisterFatBinary")(self.wrapper))
        # Only the addresses of these buffers matter: they stand for the host's functions and variables.
        self.scale, self.bump = ctypes.create_string_buffer(16), ctypes.create_string_buffer(16)
        self.counter, self.factors = ctypes.create_string_buffer(4), ctypes.create_string_buffer(16)
        self.names = [b"scale", b"bump", b"counter", b"factors"]
        for stub, name in ((self.scale, self.names[0]), (self.bump, self.names[1])):
            call("RegisterFunction")(self.handle, stub, c_char_p(name), c_char_p(name), -1, *[None] * 5)
        for variable, name, constant in ((self.counter, self.names[2], 0), (self.factors, self.names[3], 1)):
            size = c_size_t(ctypes.sizeof(variable))
            call("RegisterVar")(self.handle, variable, c_char_p(name), c_char_p(name), 0, size, constant, 0)
        call("RegisterFatBinaryEnd")(self.handle)

    def unregister(self) -> None:
        self._unregister(self.handle)
