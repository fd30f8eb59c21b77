"""`process.py LIBCUDART SITUATION`: test a CUDA runtime in one situation. Prints `ok` at the end."""

import ctypes
import os
import sys
import threading
from collections.abc import Callable
from ctypes import byref, c_float, c_int, c_size_t, c_uint, c_void_p
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from fatbinary import PTX, Registered

NBYTES = c_size_t(4096)
TO_DEVICE, TO_HOST = 1, 2
INITIALIZATION_ERROR, INSUFFICIENT_DRIVER, NO_DEVICE, INVALID_DEVICE, NOT_SUPPORTED = 3, 35, 100, 101, 801


class Dim3(ctypes.Structure):
    _fields_ = [("x", c_uint), ("y", c_uint), ("z", c_uint)]


def load() -> ctypes.CDLL:
    return ctypes.CDLL(sys.argv[1])


def check(result: int) -> None:
    assert result == 0, result


def scale(rt: ctypes.CDLL, program: Registered, n: int = 500) -> None:
    """Scale numbers by 3 on the current device, and check them."""
    p, values, count, factor = c_void_p(), (c_float * n)(*range(n)), c_int(n), c_float(3)
    nbytes = c_size_t(ctypes.sizeof(values))
    check(rt.cudaMalloc(byref(p), nbytes))
    check(rt.cudaMemcpy(p, values, nbytes, TO_DEVICE))
    arguments = (c_void_p * 3)(*(ctypes.addressof(a) for a in (p, count, factor)))
    check(rt.cudaLaunchKernel(program.scale, Dim3(4, 1, 1), Dim3(128, 1, 1), arguments, c_size_t(0), None))
    check(rt.cudaMemcpy(values, p, nbytes, TO_HOST))
    assert list(values) == [3.0 * i for i in range(n)]
    check(rt.cudaFree(p))


def no_driver() -> None:
    """There is no libcuda at all."""
    rt = load()
    count, version = c_int(-7), c_int(-7)
    assert rt.cudaGetDeviceCount(byref(count)) == INSUFFICIENT_DRIVER
    assert count.value == -7
    assert rt.cudaGetLastError() == INSUFFICIENT_DRIVER
    assert rt.cudaMalloc(byref(c_void_p()), NBYTES) == INSUFFICIENT_DRIVER
    assert rt.cudaDriverGetVersion(byref(version)) == 0
    assert version.value == 0
    Registered(rt).unregister()


def no_device() -> None:
    rt = load()
    count = c_int(-7)
    assert rt.cudaGetDeviceCount(byref(count)) == NO_DEVICE
    assert rt.cudaSetDevice(0) == NO_DEVICE
    assert rt.cudaDeviceSynchronize() == NO_DEVICE


def fork_before() -> None:
    """A forked child can use the GPU if its parent has not used the GPU before the fork."""
    rt = load()
    program = Registered(rt)
    if os.fork() == 0:
        scale(rt, program)
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
    scale(rt, program)


def fork_after() -> None:
    """A forked child of a process that uses the GPU gets an error at once; the parent continues."""
    rt = load()
    program = Registered(rt)
    scale(rt, program)
    if os.fork() == 0:
        assert rt.cudaMalloc(byref(c_void_p()), NBYTES) == INITIALIZATION_ERROR
        assert rt.cudaDeviceSynchronize() == INITIALIZATION_ERROR
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
    scale(rt, program)


def fork_while_others_work() -> None:
    """No lock of the library is held in a forked child, whatever other threads do at that moment."""
    rt = load()
    program = Registered(rt)
    scale(rt, program)
    stop = threading.Event()

    def register() -> None:
        while not stop.is_set():
            Registered(rt).unregister()

    workers = [threading.Thread(target=register) for _ in range(2)]
    for worker in workers:
        worker.start()
    for _ in range(30):
        if os.fork() == 0:
            Registered(rt).unregister()
            os._exit(0 if rt.cudaDeviceSynchronize() == INITIALIZATION_ERROR else 1)
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
    stop.set()
    for worker in workers:
        worker.join()


def unload() -> None:
    """The runtime is loaded and unloaded many times, with and without being used in between."""
    dlclose = ctypes.CDLL(None).dlclose
    dlclose.argtypes = [c_void_p]
    for i in range(20):
        rt = load()
        program = Registered(rt)
        if i % 2:
            scale(rt, program)
        program.unregister()
        check(dlclose(rt._handle))
    name = Path(sys.argv[1]).name
    assert not any(name in line for line in Path("/proc/self/maps").read_text().splitlines()), "still mapped"


def threads() -> None:
    """Each thread has its own current device and its own last error."""
    rt = load()
    program = Registered(rt)
    failures: list[object] = []

    def work(i: int) -> None:
        try:
            device = c_int(-1)
            check(rt.cudaSetDevice(i % 2))
            for _ in range(5):
                scale(rt, program, 100 + i)
            assert rt.cudaSetDevice(77) == INVALID_DEVICE
            check(rt.cudaGetDevice(byref(device)))
            assert device.value == i % 2
            assert rt.cudaPeekAtLastError() == INVALID_DEVICE
            assert rt.cudaGetLastError() == INVALID_DEVICE
            assert rt.cudaGetLastError() == 0
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert failures == []
    assert rt.cudaGetLastError() == 0


def variables_of_two_devices() -> None:
    """A device variable has one instance on each device."""
    rt = load()
    program = Registered(rt)
    value = c_int()
    for device, number in ((0, 5), (1, 6)):
        check(rt.cudaSetDevice(device))
        check(rt.cudaMemcpyToSymbol(program.counter, byref(c_int(number)), c_size_t(4), c_size_t(0), TO_DEVICE))
    for device, number in ((0, 5), (1, 6)):
        check(rt.cudaSetDevice(device))
        check(rt.cudaMemcpyFromSymbol(byref(value), program.counter, c_size_t(4), c_size_t(0), TO_HOST))
        assert value.value == number


def context_of_the_driver() -> None:
    """The runtime uses a context that the program made current through the driver."""
    rt, cuda = load(), ctypes.CDLL("libcuda.so.1")
    context, current, p = c_void_p(), c_void_p(), c_void_p()
    check(cuda.cuInit(0))
    check(cuda.cuCtxCreate_v2(byref(context), 0, 1))
    check(rt.cudaMalloc(byref(p), NBYTES))
    check(cuda.cuCtxGetCurrent(byref(current)))
    assert current.value == context.value
    device = c_int(-1)
    check(rt.cudaGetDevice(byref(device)))
    assert device.value == 1
    check(cuda.cuMemFree_v2(p))


def bad_image() -> None:
    """Launching a kernel whose image does not compile ends the context: later calls fail, too."""
    rt = load()
    broken = Registered(rt, PTX.replace("add.u32 %r3", "nonsense.u32 %r3"))
    good = Registered(rt)
    scale(rt, good)
    argument = (c_void_p * 1)(ctypes.addressof(c_int(1)))
    one = Dim3(1, 1, 1)
    for _ in range(2):
        assert rt.cudaLaunchKernel(broken.bump, one, one, argument, c_size_t(0), None) in (200, 209, 218)
        assert rt.cudaGetLastError() in (200, 209, 218)
    assert rt.cudaMalloc(byref(c_void_p()), c_size_t(4)) in (200, 209, 218)


def unsupported() -> None:
    """An unimplemented function returns an error and sets the last error; the log names the function once."""
    rt = load()
    for _ in range(3):
        assert rt.cudaMallocArray(None, None, c_size_t(1), c_size_t(1), 0) == NOT_SUPPORTED
        assert rt.cudaGetLastError() == NOT_SUPPORTED


SITUATIONS: dict[str, Callable[[], None]] = {
    function.__name__: function
    for function in (
        no_driver, no_device, fork_before, fork_after, fork_while_others_work, unload, threads,
        variables_of_two_devices, context_of_the_driver, bad_image, unsupported,
    )
}  # fmt: skip
SITUATIONS[sys.argv[2]]()
print("ok", flush=True)
