"""Run programs that use the guest library, each in its own process, because the library's state is per process."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from tests.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / os.environ.get("VGT_LIBRARY", "build/guest/libcuda.so.1")  # `make asan` names its own build

# `make tsan` preloads the sanitizer's runtime into the program alone, not into the host that the test starts.
PRELOAD = [f"LD_PRELOAD={preload}"] if (preload := os.environ.get("VGT_PRELOAD")) else []
PYTHON = ["env", *PRELOAD, sys.executable] if PRELOAD else [sys.executable]

PRELUDE = f"""
import ctypes, os, sys, threading, time
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p, create_string_buffer
cuda = ctypes.CDLL({str(LIBRARY)!r})

def ok(result):
    assert result == 0, result

def context():
    ok(cuda.cuInit(0))
    ctx = c_void_p()
    ok(cuda.cuDevicePrimaryCtxRetain(byref(ctx), 0))
    ok(cuda.cuCtxSetCurrent(ctx))
    return ctx

def alloc(nbytes):
    p = c_uint64()
    ok(cuda.cuMemAlloc_v2(byref(p), c_size_t(nbytes)))
    return p

def new(function, *args):
    handle = c_void_p()
    ok(function(byref(handle), *args))
    return handle
"""


def environment(endpoint: str | None, **changes: str) -> dict[str, str]:
    """The caller's environment, with only the given configuration of vgpu."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("VGPU_", "CUDA_"))}
    env["VGPU_GUEST_CONF"] = "/nonexistent"
    if endpoint is not None:
        env["VGPU_ENDPOINT"] = endpoint
    return env | changes


def run(endpoint: str | None, program: str, timeout_s: float = PATIENCE_S, **changes: str) -> str:
    """Run a program text after PRELUDE; returns its standard output. A failure shows the program's stderr."""
    done = subprocess.run(
        [*PYTHON, "-c", PRELUDE + textwrap.dedent(program)],
        env=environment(endpoint, **changes),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    return done.stdout
