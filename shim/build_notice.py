"""Compile the notice for drivers that are not ours: `python shim/build_notice.py` makes notice/libvgpu-notice.so in
vgpud/_lib.

It is a libcuda.so.1 in front of another (shim/notice/vgs_next_libcuda.c), found at the path that --next gives. Our own
libcuda has the notice inside and needs none. Used by the Makefile and by setup.py, so it needs nothing but Python and a
C compiler.
"""

import argparse
import fcntl
import os
import shlex
import subprocess
import sys
from pathlib import Path

from build import CFLAGS, LDFLAGS, ROOT, compile_one

SOURCES = sorted((ROOT / "shim/notice").glob("*.c"))
# Absolute, without $ORIGIN: the loader refuses that in programs that run with more rights than their user's.
NEXT = "/usr/lib/vgpu/notice/next/libcuda.so.1"
NAMES = ("cuInit", "cuGetProcAddress", "cuGetProcAddress_v2")


def link(target: Path, after: str, objects: list[Path], folder: Path, compiler: list[str], flags: list[str]) -> None:
    """Link to a new file and move it into place, so that running programs keep the library they mapped.

    Raises:
        subprocess.CalledProcessError: the linker refused; it has said why on stderr.
    """
    stand_in, script, fresh = folder / "next.so", folder / "libvgpu-notice.map", target.with_suffix(".new")
    # An empty library whose name is the path: that is how a linker comes to write it down as needed.
    empty = ["-shared", "-nostdlib", "-xc", os.devnull, f"-Wl,-soname,{after}", "-o", str(stand_in)]
    subprocess.run([*compiler, *empty], check=True)
    script.write_text("{\n  global:\n" + "".join(f"    {name};\n" for name in NAMES) + "  local:\n    *;\n};\n")
    named = [f"-Wl,-soname,libcuda.so.1,--version-script={script}"]
    needed = ["-Wl,--push-state,--no-as-needed", str(stand_in), "-Wl,--pop-state"]
    command = [*compiler, *flags, *named, *map(str, objects), *needed, "-pthread", "-o", str(fresh)]
    subprocess.run(command, check=True)
    os.replace(fresh, target)


def main() -> int:
    """Build what the command line asks for; 0 or 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "daemon/vgpud/_lib/notice", help="folder of the library")
    parser.add_argument("--next", default=NEXT, help=f"path of the libcuda it stands before (default: {NEXT})")
    parser.add_argument("--sanitize", default="", help="sanitizers, as in -fsanitize=")
    options = parser.parse_args()
    flags = [*CFLAGS, *shlex.split(os.environ.get("CFLAGS", ""))]
    ldflags = [*LDFLAGS, *shlex.split(os.environ.get("LDFLAGS", ""))]
    if options.sanitize:
        flags += [f"-fsanitize={options.sanitize}", "-fno-omit-frame-pointer", "-fno-sanitize-recover=undefined"]
        ldflags.append(f"-fsanitize={options.sanitize}")
    else:
        ldflags.append("-Wl,-z,defs")  # a sanitizer's symbols come from its preloaded runtime
    compiler = shlex.split(os.environ.get("CC", "cc"))
    objects = ROOT / "build" / ("shim" if not options.sanitize else "shim-" + options.sanitize.replace(",", "-"))
    folder = ROOT / "build/notice"
    for path in (options.out, objects, folder):
        path.mkdir(parents=True, exist_ok=True)
    target = options.out / "libvgpu-notice.so"
    try:
        parts = [compile_one(source, objects, compiler, flags) for source in SOURCES]
        with (folder / ".lock").open("w") as lock:  # tests build for paths of their own, perhaps at once
            fcntl.flock(lock, fcntl.LOCK_EX)
            link(target, options.next, parts, folder, compiler, ldflags)
    except FileNotFoundError as error:
        print(f"shim/build_notice.py: {error.filename or error} not found: a C compiler is needed", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"shim/build_notice.py: {shlex.join(map(str, error.cmd))} failed", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
