"""What a confined process is refused, tried in such a process; and that everything it needs works."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import json
import os
import platform
import signal
import socket
import struct
import subprocess
import sys

import pytest
from vgpud.supervision.refused_calls import RefusedCalls
from vgpud.worker.seccomp import filter_program

from tests.daemon.running import ENVIRONMENT
from tests.patience import PATIENCE_S

# What must be refused, as an expression; attempt() in SCRIPT returns the error's number, or 0.
REFUSED = {
    "exec": "os.execv('/bin/true', ['true'])",
    "exec by descriptor": "os.execve(os.open('/bin/true', os.O_RDONLY), ['true'], {})",
    "network": "socket.socket(socket.AF_INET, socket.SOCK_STREAM)",
    "vsock": "socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)",
    "netlink": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
    "another's socket": "socket.socket(socket.AF_UNIX).connect(path)",
    "datagrams to a socket by name": "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)",
    "the same by another name": "socket.socket(socket.AF_UNIX, socket.SOCK_RAW | socket.SOCK_CLOEXEC)",
    "the same by a pair": "socket.socketpair(type=socket.SOCK_DGRAM)",
    "who knocks at a socket": "call('accept4', 0, 0, 0, 0)",
    "signal to its parent": "os.kill(os.getppid(), 0)",
    "signal to its group": "os.kill(0, 0)",
    "signal by pidfd": "call('pidfd_send_signal', 0, 0, 0, 0)",
    "another's limits": "resource.prlimit(os.getppid(), resource.RLIMIT_CORE)",
    "a process in a user namespace": "fork_with(0x10000000)",
    "a process in a network namespace": "fork_with(0x40000000)",
    "AT2: signals to another by a descriptor": "fcntl.fcntl(0, fcntl.F_SETOWN, os.getppid())",
    "AT2: a signal of one's choice": "fcntl.fcntl(0, 10, 9)",
    "AT2: the same by ioctl": "fcntl.ioctl(0, 0x8901, struct.pack('i', os.getppid()))",
    "AT3: another's scheduling": "call('sched_setscheduler', os.getppid(), 5, 0)",
    "AT3: everybody's priority": "os.setpriority(os.PRIO_USER, os.getuid(), 19)",
}

ALLOWED = {
    "a thread": "threading.Thread(target=int).start()",
    "a pair of sockets": "socket.socketpair()",
    "a pair for messages": "socket.socketpair(type=socket.SOCK_SEQPACKET)",
    "a child": "fork_with(0)",
    "its own limits": "resource.getrlimit(resource.RLIMIT_CORE)",
    "its own priority": "os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0))",
    "a file lock": "fcntl.lockf(os.memfd_create('x'), fcntl.LOCK_EX)",
    "a signal to itself": "os.kill(os.getpid(), 0)",
    "shared memory": "os.memfd_create('x')",
    "executable memory": "mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)",
}

SCRIPT = """
import ctypes, fcntl, json, mmap, os, resource, signal, socket, struct, sys, threading
from vgpud.worker import seccomp
from vgpud.worker.confine import confine
from vgpud.worker.system_call import numbers

path, attempts, driver = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
libc = ctypes.CDLL(None, use_errno=True)

def listening():
    sock = socket.socket(socket.AF_UNIX)
    sock.bind("\\0vgpu-test-seccomp-%d" % os.getpid())
    sock.listen()
    return sock

def call(name, *arguments):
    if libc.syscall(numbers(os.uname().machine)[name], *map(ctypes.c_long, arguments)) < 0:
        raise OSError(ctypes.get_errno(), "")

def fork_with(flags):
    number = 56 if os.uname().machine == "x86_64" else 220
    pid = libc.syscall(number, ctypes.c_long(flags | signal.SIGCHLD), *[ctypes.c_long(0)] * 4)
    if pid == 0:
        os._exit(0)
    if pid < 0:
        raise OSError(ctypes.get_errno(), "")
    os.waitpid(pid, 0)

def attempt(text):
    try:
        eval(text)
    except OSError as error:
        return error.errno
    return 0

early = threading.Event()
results = {}
def from_an_older_thread():
    early.wait()
    results["older thread"] = attempt("socket.socket(socket.AF_INET)")
thread = threading.Thread(target=from_an_older_thread)
thread.start()
confine(seccomp.DRIVER if driver else frozenset())
early.set()
thread.join()
for name, text in attempts.items():
    results[name] = attempt(text)
libc.syscall(435, None, ctypes.c_long(0))
results["clone3"] = ctypes.get_errno()
print(json.dumps(results))
"""


@pytest.fixture(scope="module", params=["simulator", "driver"])
def results(request: pytest.FixtureRequest) -> dict[str, int]:
    """The error number of each attempt, 0 for success; in a child process, since a filter cannot be removed."""
    return attempt(REFUSED | ALLOWED, request.param == "driver")


def attempt(attempts: dict[str, str], driver: bool = False) -> dict[str, int]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, "/run/nobody.sock", json.dumps(attempts), json.dumps(driver)],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.stderr == ""  # no warning that a filter could not be installed
    assert done.returncode == 0
    answers: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return answers


@pytest.mark.parametrize("what", [*REFUSED, "older thread"])
def test_refused(results, what):
    assert errno.errorcode[results[what]] == "EPERM"


@pytest.mark.parametrize("what", ALLOWED)
def test_allowed(results, what):
    assert results[what] == 0


# System calls that no backend makes and an attacker would: they end the process.
FATAL = {
    "trace": "call('ptrace', 16, os.getppid(), 0, 0)",
    "read another's memory": "call('process_vm_readv', os.getppid(), 0, 0, 0, 0, 0)",
    "namespaces": "call('unshare', 0x10000000)",
    "io_uring": "call('io_uring_setup', 1, 0)",
    "bpf": "call('bpf', 0, 0, 0)",
    "mount": "call('mount', 0, 0, 0, 0, 0)",
    "files by number": "call('open_by_handle_at', 0, 0, 0)",
    "page faults": "call('userfaultfd', 0)",
}


@pytest.mark.parametrize("what", FATAL)
def test_what_only_an_attacker_calls_ends_the_process(what):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, "/run/nobody.sock", json.dumps({what: FATAL[what]}), "false"],
        env=ENVIRONMENT,
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == -signal.SIGSYS, done.stderr


def test_a_call_in_no_list_does_not_exist():
    """The control is a process with the driver's filter, where the call succeeds."""
    quota = {"a call in no list": "call('inotify_init1', 0)"}
    assert attempt(quota) == attempt(quota) | {"a call in no list": errno.ENOSYS}
    assert attempt(quota, driver=True)["a call in no list"] == 0


def test_a_socket_of_ones_own_as_cuInit_makes_is_the_drivers_alone():
    own = {"own": "listening()"}
    assert attempt(own, driver=True)["own"] == 0
    assert attempt(own)["own"] == errno.ENOSYS


def test_clone3_is_not_there_as_a_filter_cannot_see_its_flags(results):
    """With ENOSYS libc falls back to clone."""
    assert errno.errorcode[results["clone3"]] == "ENOSYS"


def test_an_abort_is_still_a_death_by_sigabrt():
    script = "import os; from vgpud.worker.confine import confine; confine(); os.abort()"
    done = subprocess.run([sys.executable, "-c", script], env=ENVIRONMENT, timeout=PATIENCE_S, check=False)
    assert done.returncode == -6


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_jump_of_the_program_lands_inside_it(machine):
    code = list(struct.iter_unpack("=HBBI", filter_program(machine, 1)))
    assert len(code) < 4096  # BPF_MAXINSNS
    for at, (operation, if_true, if_false, _) in enumerate(code):
        if operation & 7 == 5:
            assert at + 1 + max(if_true, if_false) < len(code)
    assert code[-1][0] & 7 == 6


def test_an_unknown_machine_has_no_filter():
    with pytest.raises(KeyError):
        filter_program("riscv64", 1)


def test_another_call_abi_is_refused():
    if platform.machine() != "x86_64":
        pytest.skip("x32 is an ABI of x86-64")
    code = list(struct.iter_unpack("=HBBI", filter_program("x86_64", os.getpid())))
    assert code[4][3] == 0x40000000
    assert ctypes.c_int(code[5][3]).value == 0x00050000 | errno.EPERM


REPORTING = """
import ctypes, socket, sys
from vgpud.worker.confine import confine
from vgpud.worker.system_call import numbers
import os
listener = confine(report=True)
vgpud = socket.socket(fileno=int(sys.argv[1]))
if listener < 0:
    sys.exit("this kernel has no listener")
socket.send_fds(vgpud, [b"x"], [listener])
os.close(listener)
libc = ctypes.CDLL(None, use_errno=True)
mine = numbers(os.uname().machine)
for name in sys.argv[2:]:
    number = int(name) if name.isdigit() else mine[name]
    vgpud.send(str(libc.syscall(number, 0) < 0 and ctypes.get_errno()).encode())
"""


@pytest.mark.asyncio
async def test_vgpud_answers_what_is_in_no_list_and_names_it_once():
    """After many different calls vgpud stops listening: the kernel answers the rest."""
    calls = ["inotify_init1", "inotify_init1", *map(str, range(900, 930)), "inotify_init1"]

    async def listen() -> tuple[list[str], list[bytes]]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            script = [sys.executable, "-c", REPORTING, str(theirs.fileno()), *calls]
            process = subprocess.Popen(script, env=ENVIRONMENT, pass_fds=(theirs.fileno(),))
            theirs.close()
            said: list[str] = []
            _, fds, _, _ = await asyncio.to_thread(socket.recv_fds, ours, 1, 1)
            refused = RefusedCalls(fds[0], said.append)
            answers = [await asyncio.to_thread(ours.recv, 16) for _ in calls]
            refused.close()
            assert process.wait(PATIENCE_S) == 0
        return said, answers

    said, answers = await listen()
    assert answers == [str(errno.ENOSYS).encode()] * len(calls)
    assert said == ["inotify_init1", *(f"system call {number}" for number in range(900, 915))]
