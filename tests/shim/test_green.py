"""Green contexts, and events of whole contexts, on the simulator."""

from tests.shim.simulated import Simulate

GREEN = """
NOT_READY, INVALID_VALUE, INVALID_CONTEXT, NOT_SUPPORTED, TOO_LARGE, CAPTURES = 600, 1, 201, 801, 720, 900
INVALID_TYPE, INVALID_CONFIGURATION = 914, 915
SM, NON_BLOCKING = 1, 1
class Resource(ctypes.Structure):
    _fields_ = [("type", c_int), ("pad", ctypes.c_ubyte * 92), ("count", c_uint), ("least", c_uint), ("unit", c_uint),
                ("rest", ctypes.c_ubyte * 36)]
HOST_FUNCTION = ctypes.CFUNCTYPE(None, c_void_p)
kept = []
def gate(stream):
    '''A host function in `stream` that waits until the second value is set; the first is set once it runs.'''
    begun, may_end = threading.Event(), threading.Event()
    f = HOST_FUNCTION(lambda _: (begun.set(), may_end.wait(60)))
    kept.append(f)
    ok(cuda.cuLaunchHostFunc(stream, f, None))
    assert begun.wait(60)
    return may_end
def whole():
    found = Resource()
    ok(cuda.cuDeviceGetDevResource(0, byref(found), SM))
    return found
def divide(resource, least, most=1, flags=0):
    groups, count, left = (Resource * most)(), c_uint(most), Resource()
    result = cuda.cuDevSmResourceSplitByCount(groups, byref(count), byref(resource), byref(left), flags, least)
    return result or (list(groups)[: count.value], left)
def describe(*resources):
    return new(cuda.cuDevResourceGenerateDesc, (Resource * len(resources))(*resources), len(resources))
def green_of(*resources): return new(cuda.cuGreenCtxCreate, describe(*resources), 0, 1)
def green_stream(green): return new(cuda.cuGreenCtxStreamCreate, green, NON_BLOCKING, 0)
def event(): return new(cuda.cuEventCreate, 0)
def sync(stream): ok(cuda.cuStreamSynchronize(stream))
def halves():
    (first,), second = divide(all_of_it, all_of_it.count // 2)
    return first, second
ok(cuda.cuInit(0))
primary = new(cuda.cuDevicePrimaryCtxRetain, 0)
ok(cuda.cuCtxSetCurrent(primary))
all_of_it = whole()
"""

WHERE = r'''
WHERE = rb"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry where(.param .u64 seen) {
  .reg .u32 %r<3>; .reg .u64 %d<4>;
  ld.param.u64 %d1, [seen];
  mov.u32 %r1, %smid;
  mul.wide.u32 %d2, %r1, 4;
  add.u64 %d3, %d1, %d2;
  mov.u32 %r2, 1;
  st.global.u32 [%d3], %r2;
  ret;
}
""" + b"\0"
where = function(new(cuda.cuModuleLoadData, WHERE), b"where")
seen = upload([0] * 512)
def used(stream):
    ok(cuda.cuMemsetD32_v2(seen, 0, c_size_t(512)))
    ok(cuda.cuCtxSynchronize())
    ok(launch(where, 64 * 64, stream, params(seen)))
    sync(stream)
    return {i for i, word in enumerate(download(seen, 512)) if word}
'''


def test_multiprocessors_are_divided_as_the_manual_says(simulate: Simulate) -> None:
    simulate(
        GREEN
        + """
count, major = c_int(), c_int()
ok(cuda.cuDeviceGetAttribute(byref(count), 16, 0))
ok(cuda.cuDeviceGetAttribute(byref(major), 75, 0))
unit = 8 if major.value >= 9 else 2
least = 4 if major.value == 8 else unit
assert (all_of_it.type, all_of_it.count, all_of_it.least, all_of_it.unit) == (SM, count.value, least, unit)
for wanted, most, flags in ((1, 1, 0), (9, 3, 0), (count.value // 2, 1, 0), (count.value // 3, 9, 0), (3, 200, 1)):
    groups, left = divide(all_of_it, wanted, most, flags)
    each = -(-max(wanted, 2 if flags else least) // (2 if flags else unit)) * (2 if flags else unit)
    assert [g.count for g in groups] == [each] * min(most, count.value // each), (wanted, [g.count for g in groups])
    assert all(g.type == SM for g in groups)
    assert left.count == count.value - sum(g.count for g in groups) and left.type == (SM if left.count else 0)
number = c_uint(0)
ok(cuda.cuDevSmResourceSplitByCount(None, byref(number), byref(all_of_it), None, 0, 16))
assert number.value == count.value // 16
assert divide(all_of_it, count.value + 1) == INVALID_CONFIGURATION
assert divide(all_of_it, 8, flags=4) == INVALID_VALUE
first, second = halves()
assert divide(first, 8) == INVALID_CONFIGURATION  # a green context of it can be divided
g = green_of(first)
mine = Resource()
ok(cuda.cuGreenCtxGetDevResource(g, byref(mine), SM))
assert mine.count == first.count
assert len(divide(mine, 8, 2)[0]) == 2
desc = c_void_p()
assert cuda.cuDevResourceGenerateDesc(byref(desc), (Resource * 2)(first, first), 2) == INVALID_CONFIGURATION
assert cuda.cuDevResourceGenerateDesc(byref(desc), byref(Resource()), 1) in (INVALID_VALUE, INVALID_TYPE)
assert cuda.cuGreenCtxCreate(byref(c_void_p()), describe(first), 0, 0) == INVALID_VALUE
both = green_of(first, second)
ok(cuda.cuGreenCtxGetDevResource(both, byref(mine), SM))
assert mine.count == count.value
assert cuda.cuGreenCtxGetDevResource(both, byref(mine), 2) == NOT_SUPPORTED
"""
    )


def test_kernels_use_the_multiprocessors_of_their_green_context(simulate: Simulate) -> None:
    """Also in the context that stands for it, and in its default stream; cooperative launches fit them."""
    simulate(
        GREEN
        + WHERE
        + """
parts = halves()
greens = [green_of(part) for part in parts]
streams = [green_stream(g) for g in greens]
found = [used(s) for s in streams]
assert all(found) and not found[0] & found[1], found
assert all(len(f) <= part.count for f, part in zip(found, parts))
contexts = [new(cuda.cuCtxFromGreenCtx, g) for g in greens]
told = Resource()
for i, context in enumerate(contexts):
    ok(cuda.cuCtxSetCurrent(context))
    ok(cuda.cuCtxGetDevResource(context, byref(told), SM))
    assert told.count == parts[i].count
    own = new(cuda.cuStreamCreate, NON_BLOCKING)
    for stream in (None, own):
        there = used(stream)
        assert there and not there & found[1 - i], (i, there, found)
ok(cuda.cuCtxSetCurrent(primary))
blocks = c_int()
ok(cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor(byref(blocks), where, 1024, c_size_t(0)))
fit = blocks.value * parts[0].count
def cooperative(grid, stream):
    return cuda.cuLaunchCooperativeKernel(where, grid, 1, 1, 1024, 1, 1, 0, stream, params(seen))
plain = new(cuda.cuStreamCreate, NON_BLOCKING)
ok(cooperative(fit + 1, plain))
ok(cooperative(fit, streams[0]))
ok(cuda.cuCtxSynchronize())
assert cooperative(fit + 1, streams[0]) or cuda.cuStreamSynchronize(streams[0])
"""
    )


def test_events_of_contexts(simulate: Simulate) -> None:
    """An event of a context is complete when all its streams have reached it; what waits for one is all later work,
    also in streams that are created later."""
    simulate(
        GREEN
        + """
first, second = map(green_of, halves())
a, b, plain = green_stream(first), green_stream(second), new(cuda.cuStreamCreate, NON_BLOCKING)
of_first, of_second, of_all = event(), event(), event()
may_end = gate(a)
ok(cuda.cuGreenCtxRecordEvent(first, of_first))
ok(cuda.cuGreenCtxRecordEvent(second, of_second))
ok(cuda.cuCtxRecordEvent(primary, of_all))
ok(cuda.cuEventSynchronize(of_second))
assert cuda.cuEventQuery(of_first) == NOT_READY and cuda.cuEventQuery(of_all) == NOT_READY
ok(cuda.cuGreenCtxWaitEvent(second, of_first))
p = alloc(4)
sync(plain)  # the others go on
ok(cuda.cuMemsetD32Async(p, 1, c_size_t(1), b))
assert cuda.cuStreamQuery(b) == NOT_READY
ok(cuda.cuMemsetD32Async(p, 2, c_size_t(1), plain))
sync(plain)
may_end.set()
sync(b)
ok(cuda.cuEventSynchronize(of_first))
ok(cuda.cuEventSynchronize(of_all))

may_end = gate(a)
ok(cuda.cuGreenCtxRecordEvent(first, of_first))
ok(cuda.cuCtxWaitEvent(primary, of_first))
later = new(cuda.cuStreamCreate, NON_BLOCKING)
for s in (plain, b, later):
    ok(cuda.cuMemsetD32Async(p, 3, c_size_t(1), s))
    assert cuda.cuStreamQuery(s) == NOT_READY
may_end.set()
for s in (plain, b, later):
    sync(s)

ok(cuda.cuStreamBeginCapture_v2(b, 0))
assert cuda.cuGreenCtxRecordEvent(second, of_second) == CAPTURES
ok(cuda.cuGreenCtxRecordEvent(first, of_first))
assert cuda.cuStreamEndCapture(b, byref(c_void_p())) == 901
"""
    )


def test_the_end_of_green_contexts(simulate: Simulate) -> None:
    simulate(
        GREEN
        + """
parts = halves()
first, second = map(green_of, parts)
numbers = [c_uint64(), c_uint64()]
for g, number in zip((first, second), numbers):
    ok(cuda.cuGreenCtxGetId(g, byref(number)))
assert numbers[0].value != numbers[1].value
s, context = green_stream(first), new(cuda.cuCtxFromGreenCtx, first)
assert cuda.cuCtxDestroy_v2(context) == INVALID_CONTEXT
ok(cuda.cuGreenCtxDestroy(first))
assert cuda.cuCtxSetCurrent(context) != 0
assert cuda.cuGreenCtxGetId(first, byref(numbers[0])) == INVALID_CONTEXT
ok(cuda.cuStreamDestroy_v2(s))
p = alloc(4)
for g in (second, green_of(parts[0])):
    t = green_stream(g)
    ok(cuda.cuMemsetD32Async(p, 1, c_size_t(1), t))
    sync(t)
"""
    )
