"""Limits and settings of contexts, and device resources, on the simulator."""

from pathlib import Path

from tests.shim.simulated import Simulate


def test_a_context_is_created_by_empty_parameters(simulate: Simulate) -> None:
    """ctxcreate_v4: programs call CUDA 13's cuCtxCreate with a zeroed struct as well as with NULL."""
    simulate("""
    ok(cuda.cuInit(0))
    params = (ctypes.c_byte * 24)()
    for given in (None, params):
        ctx = c_void_p()
        ok(cuda.cuCtxCreate_v4(byref(ctx), given, 0, 0))
        alloc(4096)
        ok(cuda.cuCtxDestroy_v2(ctx))
    ok(cuda.cuCtxCreate_v3(byref(ctx), params, 0, 0, 0))
    ok(cuda.cuCtxDestroy_v2(ctx))
    assert cuda.cuCtxCreate_v3(byref(ctx), None, 1, 0, 0) == 1
    assert cuda.cuCtxCreate_v3(byref(ctx), params, 1, 0, 0) == 801
    ctypes.c_uint64.from_buffer(params, 16).value = 4096  # shared with a graphics API
    assert cuda.cuCtxCreate_v4(byref(ctx), params, 0, 0) == 801
    """)


def test_limits_are_asked_for_once(simulate: Simulate, tmp_path: Path) -> None:
    """Without the cache, 24 queries in each training step of PyTorch waited for a reply."""
    log = tmp_path / "log"
    simulate(
        """
    context()
    def limit(which):
        value = c_size_t()
        ok(cuda.cuCtxGetLimit(byref(value), which))
        return value.value
    before = [limit(0), limit(0), limit(0)]
    assert len(set(before)) == 1
    ok(cuda.cuCtxSetLimit(0, c_size_t(16384)))
    assert limit(0) == limit(0) == 16384
    assert limit(1) == limit(1) != 16384
    ctx = c_void_p()
    ok(cuda.cuCtxCreate_v2(byref(ctx), 0, 0))
    assert limit(0) == before[0]
    ok(cuda.cuCtxDestroy_v2(ctx))
    assert limit(0) == 16384
    ok(cuda.cuDevicePrimaryCtxReset_v2(0))
    context()
    assert limit(0) == limit(0) == before[0]
    """,
        VGPU_LOG="trace",
        VGPU_LOG_FILE=str(log),
    )
    asked = [line for line in log.read_text().splitlines() if "cuCtxGetLimit" in line]
    assert len(asked) == 11
    assert sum("waited" in line for line in asked) == 5


def test_nr13_names_of_null_are_bad_values(simulate: Simulate) -> None:
    simulate("""
    context()
    name = c_char_p()
    for get in (cuda.cuKernelGetName, cuda.cuFuncGetName):
        assert get(byref(name), None) == 1
        assert get(byref(name), c_void_p(12345)) == 400
    """)


def test_nr14_settings_of_core_dumps_are_kept(simulate: Simulate) -> None:
    simulate("""
    def get(function, attribute, nbytes=1024):
        value, n = create_string_buffer(nbytes), c_size_t(nbytes)
        result = function(attribute, value, byref(n))
        return result or value.raw[:n.value]
    def put(function, attribute, value):
        return function(attribute, value, byref(c_size_t(len(value))))
    both, own = cuda.cuCoredumpGetAttributeGlobal, cuda.cuCoredumpGetAttribute
    assert get(both, 1) == b"\\0" and get(both, 2) == b"\\1"  # before cuInit
    assert get(both, 5).startswith(b"core.cuda.") and get(both, 5).endswith(b"\\0")
    assert put(cuda.cuCoredumpSetAttributeGlobal, 1, b"\\1") == 0
    assert get(own, 1) == 3
    context()
    assert get(both, 1) == get(own, 1) == b"\\1"
    assert put(cuda.cuCoredumpSetAttribute, 5, b"here") == 0
    assert get(own, 5) == b"here\\0" and get(both, 5) != b"here\\0"
    assert put(cuda.cuCoredumpSetAttributeGlobal, 7, b"\\3\\0\\0\\0") == 0
    assert get(own, 7) == b"\\3\\0\\0\\0"
    n = c_size_t()
    ok(own(5, None, byref(n)))
    assert n.value == 5
    assert get(own, 5, 4) == 1 and get(own, 0) == get(own, 8) == 1
    assert put(cuda.cuCoredumpSetAttributeGlobal, 7, b"\\xff\\0\\0\\0") == 1
    assert put(cuda.cuCoredumpSetAttributeGlobal, 5, b"x" * 1024) == 1
    assert put(cuda.cuCoredumpSetAttribute, 6, b"pipe") == 800
    """)


def test_nr15_multiprocessors_are_a_resource(simulate: Simulate) -> None:
    simulate("""
    ctx = context()
    count = c_int()
    ok(cuda.cuDeviceGetAttribute(byref(count), 16, 0))
    for function, of in ((cuda.cuDeviceGetDevResource, 0), (cuda.cuCtxGetDevResource, ctx)):
        resource = (c_uint * 36)()
        ok(function(of, resource, 1))
        assert resource[0] == 1 and resource[24] == count.value
        assert function(of, resource, 0) == 1 and function(of, None, 1) == 1
    assert cuda.cuDeviceGetDevResource(99, resource, 1) == 101
    """)
