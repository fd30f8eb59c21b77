"""Random command streams: framing that is right most of the time, plausible handles, hostile numbers."""

import random
import re
import struct

from vgpud._gen.api import HEADER, RECORDS, WANT_REPLY, Record

FORMATS = {"uint64_t": "Q", "uint32_t": "I", "int32_t": "i", "float": "f"}
HANDLES = {"CUipcMemHandle": 64, "CUipcEventHandle": 64, "CUmemPoolPtrExportData": 64}  # opaque structs: bytes
BY_NAME = {record.name: record for record in RECORDS}
CALLBACKS = {"vgpuHostCallback", "vgpuNextCallback"}  # left out: they wait for an answer of the client

# Sizes at which arithmetic or bounds go wrong.
HOSTILE = [0, 1, 7, 8, 64, 255, 4096, 65536, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 40, 1 << 47]
HOSTILE += [(1 << 63) - 1, 1 << 63, (1 << 64) - 4096, (1 << 64) - 1]

PTX = b""".version 7.5
.target sm_75
.address_size 64
.visible .global .align 4 .u32 total;
.visible .entry store(.param .u64 data, .param .u64 value)
{
  .reg .u64 %rd<3>;
  .reg .u32 %r<2>;
  ld.param.u64 %rd0, [data];
  ld.param.u64 %rd1, [value];
  mov.u32 %r0, %tid.x;
  mul.wide.u32 %rd2, %r0, 8;
  add.u64 %rd0, %rd0, %rd2;
  st.global.u64 [%rd0], %rd1;
  ret;
}
"""


REQUESTS = [
    record
    for record in RECORDS
    if record.name not in CALLBACKS and all(kind in FORMATS | HANDLES for kind, _ in record.request)
]
# Chosen rarely: they destroy what later requests use, or nearly always end the session.
RARE = re.compile("Destroy|Unload|Reset|Release|Drop|vgpuRing|vgpuHostMap|vgpuCallback")


def encode(name: str, sequence: int, context: int, fields: dict[str, int], tail: bytes = b"") -> bytes:
    """One request; numbers are reduced to their fields' widths, and fields missing in `fields` are 0."""
    record = BY_NAME[name]
    fixed = b""
    for kind, field in record.request:
        if kind in HANDLES:
            fixed += (fields.get(field, 0) % (1 << 8 * HANDLES[kind])).to_bytes(HANDLES[kind], "big")
            continue
        if kind not in FORMATS:
            raise ValueError(f"{name}: no way to write a {kind}")
        code = FORMATS[kind]
        value = fields.get(field, 0)
        fixed += (
            struct.pack("<f", value % 1000)
            if code == "f"
            else (value % (1 << 8 * struct.calcsize(code))).to_bytes(struct.calcsize(code), "little")
        )
    body = fixed + bytes(-len(fixed) % 8) + tail + bytes(-len(tail) % 8)
    return HEADER.pack(HEADER.size + len(body), record.opcode, WANT_REPLY * record.waits, sequence, context) + body


class Stream:
    """A source of requests. Add the addresses of allocations to `addresses`, so that some accesses are valid."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.addresses = [0]
        self.sequence = 0
        self.handle = 16

    def opening(self) -> list[tuple[int, bytes]]:
        """Requests that create a context, memory, a module and kernels, which later requests then name.

        Returns:
            For each request: its sequence number, or 0 if it has no reply, and its bytes.
        """
        requests = [("cuDevicePrimaryCtxRetain", {"pctx": 1, "dev": 0}, b"")]
        requests += [("cuMemAlloc_v2", {"bytesize": nbytes}, b"") for nbytes in (4096, 1 << 20)]
        image = {"image": 1, "total": len(PTX), "offset": 0, "nbytes": len(PTX)}
        requests += [("vgpuImageWrite", image, PTX), ("cuModuleLoadData", {"module": 1, "image": 1}, b"")]
        requests += [("cuModuleGetFunction", {"hfunc": 1, "hmod": 1, "name_nbytes": 5}, b"store")]
        requests += [("cuStreamCreateWithPriority", {"phStream": 1}, b""), ("cuEventCreate", {"phEvent": 1}, b"")]
        requests += [("cuDeviceGetDefaultMemPool", {"pool_out": 1}, b"")]
        image = image | {"image": 2}
        requests += [("vgpuImageWrite", image, PTX), ("cuLibraryLoadData", {"library": 1, "image": 2}, b"")]
        requests += [("cuLibraryGetKernel", {"pKernel": 1, "library": 1, "name_nbytes": 5}, b"store")]
        opening = []
        for name, fields, tail in requests:
            context = 0 if name == "cuDevicePrimaryCtxRetain" else 1
            request = encode(name, self._next(), context, fields, tail)
            opening.append((self.sequence if BY_NAME[name].waits else 0, request))
        return opening

    def request(self) -> bytes:
        """A request of a random function; in one of fifty, one bit is flipped."""
        record = self.random.choice(REQUESTS)
        if RARE.search(record.name) and self.random.random() < 0.95:
            return self.request()
        tail = self.random.randbytes(self.random.choice([0, 8, 16, 16, 64, 4096]))
        fields = {field: self._value(record, kind, field, len(tail)) for kind, field in record.request}
        if record.name == "cuLaunchKernel" and self.random.random() < 0.7:
            small = self.random.randrange
            tail = struct.pack("<QQ", self._address() % (1 << 64), 7)
            fields |= {field: small(1, 4) for field in fields if "Dim" in field}
            fields |= {"kind": 6, "object": 1, "sharedMemBytes": 0, "params_nbytes": 16}
        data = bytearray(
            encode(record.name, self._next(), self.random.choices([1, 0, 2], [960, 40, 1])[0], fields, tail)
        )
        if self.random.random() < 0.02:
            data[self.random.randrange(len(data))] ^= 1 << self.random.randrange(8)
        return bytes(data)

    def _next(self) -> int:
        self.sequence += 1
        return self.sequence

    def _address(self) -> int:
        return self.random.choice(self.addresses) + self.random.choice([0, 0, 0, 8, 4088, -8])

    def _value(self, record: Record, kind: str, field: str, tail_nbytes: int) -> int:
        dice = self.random.random()
        meaning, of = record.meanings.get(field, ("", ""))
        if meaning == "creates" and dice < 0.98:
            self.handle += 1
            return self.handle
        if meaning in ("uses", "destroys") and dice < 0.995:
            return 1 if dice < 0.8 or of != "STREAM" else 0
        if meaning == "kernel" and dice < 0.98:
            return 1
        if meaning == "kernel kind" and dice < 0.98:
            return self.random.choice([6, 6, 7])
        if meaning == "length" and dice < 0.9:
            in_bytes = {part[0] for part in record.parts if part[1] in ("bytes", "text")}
            return tail_nbytes if of in in_bytes else tail_nbytes // 4
        if kind == "uint64_t" and dice < 0.45:
            return self._address()
        if dice < 0.8:
            return self.random.randrange(4)
        return self.random.choice(HOSTILE) if dice < 0.97 else self.random.getrandbits(64)
