"""Programs for test_claim.py, here and on a card: they map memory of their own around what the driver allocates."""

from __future__ import annotations

TOOLS = """
import resource
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = c_void_p
libc.mmap.argtypes = (c_void_p, c_size_t, c_int, c_int, c_int, ctypes.c_long)
ANONYMOUS_PRIVATE_FIXED_NOREPLACE, MIB = 0x100022, 1 << 20

def own(address, nbytes=4096):
    '''Memory of the program's own at this address; whether it could be had there.'''
    return libc.mmap(address, nbytes, 3, ANONYMOUS_PRIVATE_FIXED_NOREPLACE, -1, 0) == address

def occupy(address, nbytes):
    '''As a large library: a mapping without access.'''
    assert libc.mmap(address, nbytes, 0, ANONYMOUS_PRIVATE_FIXED_NOREPLACE, -1, 0) == address

def free_nbytes():
    free, total = c_size_t(), c_size_t()
    ok(cuda.cuMemGetInfo_v2(byref(free), byref(total)))
    return free.value

def linear(nbytes):
    p = c_uint64(0xdead)
    return cuda.cuMemAlloc_v2(byref(p), c_size_t(nbytes)), p.value

def pitched(nbytes):
    p, pitch = c_uint64(0xdead), c_size_t()
    return cuda.cuMemAllocPitch_v2(byref(p), byref(pitch), c_size_t(4096), c_size_t(nbytes // 4096), 4), p.value

def stream_ordered(nbytes):
    p = c_uint64(0xdead)
    return cuda.cuMemAllocAsync(byref(p), c_size_t(nbytes), None), p.value

def reserved(nbytes):
    p = c_uint64(0xdead)
    return cuda.cuMemAddressReserve(byref(p), c_size_t(nbytes), c_size_t(0), c_uint64(0), c_uint64(0)), p.value

def next_address():
    '''Where the simulator puts the next allocation of 256 MiB: from here on the addresses are free.'''
    result, first = linear(256 * MIB)
    assert result == 0
    return first + 256 * MIB
context()
"""

# The program maps memory wherever a driver may put the next allocations, before and behind the first one.
AROUND = """
result, first = linear(256 * MIB)
assert result == 0
places = [first + i * 64 * MIB for i in range(-40, 40)]
places = [place for place in places if own(place)]
assert places
for make in makers:
    for i in range(6):
        result, p = make(256 * MIB)
        assert result == 0
        assert not any(p <= place < p + 256 * MIB for place in places), hex(p)
        assert not own(p) and not own(p + 255 * MIB)
ok(cuda.cuCtxSynchronize())
for place in places:
    ctypes.memset(place, 7, 64)
    ok(cuda.cuMemcpyHtoD_v2(c_uint64(first), c_void_p(place), c_size_t(64)))
    ok(cuda.cuMemcpyDtoH_v2(c_void_p(place + 100), c_uint64(first), c_size_t(64)))
    assert ctypes.string_at(place + 100, 64) == bytes([7]) * 64
"""

# The program has mapped 10 GiB on each side of its first allocation, as large libraries. Prints what happened. Free
# memory is printed, and not judged by: others use the same card.
REGION = '''
import time
result, first = linear(2 * MIB)
assert result == 0
chunk = first // (2 * MIB) * (2 * MIB)
for where, hint in (("below", chunk - (12 << 30)), ("above", chunk + (12 << 30))):
    p, begin = c_uint64(), time.perf_counter()
    result = cuda.cuMemAddressReserve(byref(p), c_size_t(64 * MIB), c_size_t(0), c_uint64(hint), c_uint64(0))
    took_ms = 1e3 * (time.perf_counter() - begin)
    place = "at its hint" if p.value == hint else f"{(p.value - hint) / MIB:+.0f} MiB from its hint"
    print(f"reservation 12 GiB {where} {first:#x}: result {result}, {p.value:#x}, {place}, {took_ms:.2f} ms")
    if result == 0:
        ok(cuda.cuMemAddressFree(p, c_size_t(64 * MIB)))

step = 2 * MIB
def taken(places):
    return [place for place in places if libc.mmap(place, step, 0, ANONYMOUS_PRIVATE_FIXED_NOREPLACE, -1, 0) == place]

below, above = taken(chunk - i * step for i in range(1, 5121)), taken(chunk + i * step for i in range(1, 5121))
print(f"mapped: {len(below)} of 5120 pieces of 2 MiB below {chunk:#x}, {len(above)} above")
assert len(below) + len(above) >= 5120
owned, wrong, KIB = set(below + above), [], 1 << 10

def check(holds, *said):
    if not holds:
        wrong.append(said)
        print("WRONG:", *said, flush=True)

def lies_apart(p, nbytes):
    first = p // step * step
    return not any(place in owned for place in range(first, p + nbytes, step)) and not own(p // 4096 * 4096)

def measured(name, make, nbytes):
    """One allocation, and what it took."""
    before, begin = free_nbytes(), time.perf_counter()
    result, p = make(nbytes)
    took_ms = 1e3 * (time.perf_counter() - begin)
    less = (before - free_nbytes()) / MIB
    where = f"{p:#x}, {(p - first) / (1 << 30):+.2f} GiB from the first" if result == 0 else ""
    size = f"{name} {nbytes / MIB:g} MiB"
    print(f"{size}: result {result}, {took_ms:.2f} ms, {less:g} MiB less free, {where}", flush=True)
    check(result == 0, name, nbytes, "result", result)
    if result == 0:
        check(lies_apart(p, nbytes), name, nbytes, hex(p), "lies over the program's memory")
    return p if result == 0 else 0

def use(name, p, nbytes):
    """Fill, copy and read both ends."""
    for at in (p, p + max(0, nbytes - MIB)):
        n = min(nbytes, MIB)
        results = [cuda.cuMemsetD8_v2(c_uint64(at), 3, c_size_t(n))]
        text, back = create_string_buffer(os.urandom(min(n, 4096)), min(n, 4096)), create_string_buffer(min(n, 4096))
        results += [cuda.cuMemcpyHtoD_v2(c_uint64(at), text, c_size_t(len(text)))]
        results += [cuda.cuMemcpyDtoD_v2(c_uint64(first), c_uint64(at), c_size_t(len(text)))]
        results += [cuda.cuMemcpyDtoH_v2(back, c_uint64(first), c_size_t(len(text)))]
        check(results == [0] * 4 and back.raw == text.raw, name, hex(p), "fill and copies", results)

PTX = b""".version 7.0
.target sm_70
.address_size 64
.visible .entry add(.param .u64 p) {
 .reg .b64 %rd<4>; .reg .b32 %r<4>;
 ld.param.u64 %rd1, [p];
 mov.u32 %r1, %tid.x;
 mul.wide.u32 %rd2, %r1, 4;
 add.s64 %rd3, %rd1, %rd2;
 ld.global.u32 %r2, [%rd3];
 add.u32 %r2, %r2, 5;
 st.global.u32 [%rd3], %r2;
 ret;
}"""
module, function = c_void_p(), c_void_p()
ok(cuda.cuModuleLoadData(byref(module), PTX))
ok(cuda.cuModuleGetFunction(byref(function), module, b"add"))

def launch(p, nbytes):
    count = min(nbytes // 4, 256)
    words, argument = (c_uint * count)(*range(count)), c_uint64(p)
    results = [cuda.cuMemcpyHtoD_v2(c_uint64(p), words, c_size_t(4 * count))]
    arguments = (c_void_p * 1)(ctypes.addressof(argument))
    results += [cuda.cuLaunchKernel(function, 1, 1, 1, count, 1, 1, 0, None, arguments, None)]
    results += [cuda.cuMemcpyDtoH_v2(words, c_uint64(p), c_size_t(4 * count))]
    check(results == [0] * 3 and list(words) == [i + 5 for i in range(count)], hex(p), "a kernel", results, words[:4])

def known(name, p, nbytes):
    base, size = c_uint64(), c_size_t()
    results = [cuda.cuMemGetAddressRange_v2(byref(base), byref(size), c_uint64(p + nbytes // 2))]
    kind = c_int()
    results += [cuda.cuPointerGetAttribute(byref(kind), 2, c_uint64(p))]
    seen = (base.value, size.value >= nbytes, kind.value)
    check(results == [0, 0] and seen == (p, True, 2), name, hex(p), "what is known of it", results, seen)

whole = free_nbytes()
live = [(2 * MIB, linear), (512 * MIB, linear), (2 * MIB, linear), (512 * MIB, linear), (KIB, linear), (MIB, linear)]
live += [(3 * MIB, linear), (8 * MIB, pitched), (2 * MIB, stream_ordered), (64 * MIB, stream_ordered)]
live = [(measured(make.__name__, make, nbytes), nbytes, make) for nbytes, make in live]
p = measured("reserved", reserved, 64 * MIB)
if p:
    check(cuda.cuMemAddressFree(c_uint64(p), c_size_t(64 * MIB)) == 0, "cuMemAddressFree")
for p, nbytes, make in live:
    if p:
        use(make.__name__, p, nbytes)
        launch(p, nbytes)
        known(make.__name__, p, nbytes)
shared = cuda.cuIpcGetMemHandle(create_string_buffer(64), c_uint64(live[0][0]))
print(f"cuIpcGetMemHandle of {live[0][0]:#x}: result {shared}", flush=True)

begin, before = time.perf_counter(), free_nbytes()
small = [linear(KIB) for _ in range(2000)]
took_ms, less = 1e3 * (time.perf_counter() - begin), (before - free_nbytes()) / MIB
places = sorted(p for result, p in small if result == 0)
print(f"2000 of 1 KiB: {len(places)} made, {took_ms:.0f} ms, {less:g} MiB less free, "
      f"{min(places, default=0):#x} to {max(places, default=0):#x}", flush=True)
check(len(places) == 2000 and len(set(places)) == 2000, "small ones")
check(all(b - a >= KIB for a, b in zip(places, places[1:])), "small ones overlap")
check(all(place // step * step not in owned for place in places), "a small one lies over the program's memory")
granules = {place // step for place in places}
print(f"small ones lie in {len(granules)} granules of 2 MiB", flush=True)
check(len(granules) <= 4, "small ones lie in", len(granules), "granules")
for p in places:
    check(cuda.cuMemsetD8_v2(c_uint64(p), 7, c_size_t(KIB)) == 0, "fill", hex(p))
for p in places[::50]:
    use("small", p, KIB)
    launch(p, KIB)
for p in places:
    check(cuda.cuMemFree_v2(c_uint64(p)) == 0, "free", hex(p))

begin, before = time.perf_counter(), free_nbytes()
for i in range(100):
    nbytes = (KIB, 2 * MIB, 5 * MIB + 512)[i % 3]
    result, p = linear(nbytes)
    check(result == 0 and lies_apart(p, nbytes), "in a loop", nbytes, result, hex(p))
    if result == 0:
        launch(p, nbytes)
        check(cuda.cuMemFree_v2(c_uint64(p)) == 0, "free", hex(p))
took_ms, less = 1e3 * (time.perf_counter() - begin), (before - free_nbytes()) / MIB
print(f"100 allocations and frees: {took_ms / 100:.2f} ms each, {less:g} MiB less free", flush=True)

begin = time.perf_counter()
for i in range(100):
    nbytes = (KIB, 2 * MIB, 40 * MIB)[i % 3]
    result, p = stream_ordered(nbytes)
    check(result == 0 and lies_apart(p, nbytes), "from a pool in a loop", nbytes, result, hex(p))
    if result == 0:
        launch(p, nbytes)
        check(cuda.cuMemFreeAsync(c_uint64(p), None) == 0, "free in order", hex(p))
print(f"100 of a pool: {1e3 * (time.perf_counter() - begin) / 100:.2f} ms each", flush=True)

for p, nbytes, make in live:
    if p:
        freed = cuda.cuMemFreeAsync(c_uint64(p), None) if make == stream_ordered else cuda.cuMemFree_v2(c_uint64(p))
        check(freed == 0, make.__name__, hex(p), "is freed", freed)
        check(cuda.cuMemFree_v2(c_uint64(p)) != 0, make.__name__, hex(p), "is freed twice")
ok(cuda.cuCtxSynchronize())
result, p = linear(MIB)  # which frees what streams are done with
less = (whole - free_nbytes()) / MIB
print(f"at the end: {less:g} MiB less free", flush=True)
assert not wrong, wrong
'''
