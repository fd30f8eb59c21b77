"""Run clang-tidy over the C files that have changed since they were last found clean.

`python tests/house/tidy.py [FILE.c …]` looks at these files, or at all. It prints what clang-tidy prints and exits 1
when it found something, 2 for a file that is not one of the checked ones. build/tidy records which files are clean, by
a hash of everything that can change the result.
"""

import hashlib
import os
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PARTS = (
    *(
        f"shim/{name}"
        for name in ("base", "connect", "channel", "cuda", "nvml", "cudart", "cupti", "compiler", "notice", "probe")
    ),
    "daemon/executor",
    "daemon/vgpusim/device",
)
GENERATED = ("", "nvml", "cudart", "cudart/13", "cupti", "cupti/13")
INCLUDES = [*(f"build/gen/{name}" for name in GENERATED), "protocol/c", *PARTS]
COMPILER = ["-DVGS_MAJOR=13", '-DVGS_STEM="libnvrtc.so."', '-DVGS_PATH_VARIABLE="VGPU_NVRTC"', '-DVGS_PYPI="/lib"']
FLAGS = [
    "-std=gnu11",
    "-D_GNU_SOURCE",
    *COMPILER,
    *(f"-I{path}" for path in INCLUDES),
    f"-I{sysconfig.get_path('include')}",
]


def fingerprint(source: Path, shared: bytes) -> str:
    """A hash of everything that decides the result: the settings, the file, and every header of the project that it
    includes."""
    command = ["cc", "-MM", *FLAGS, str(source)]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = sorted(set(listed.replace("\\\n", " ").split(":", 1)[1].split()))
    return hashlib.sha256(shared + b"".join((ROOT / name).read_bytes() for name in names)).hexdigest()


def main() -> int:
    shared = b"".join(path.read_bytes() for path in [ROOT / ".clang-tidy", Path(__file__)])
    clean = ROOT / "build/tidy"
    clean.mkdir(parents=True, exist_ok=True)
    tidy = Path(sys.executable).parent / "clang-tidy"

    def check(source: Path) -> bool:
        mark = clean / fingerprint(source, shared)
        if mark.exists():
            return True
        command = [str(tidy), "--quiet", str(source), "--", *FLAGS]
        result = subprocess.run(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=300
        )
        if result.returncode:
            print(result.stdout, end="")
            return False
        mark.touch()
        return True

    every = sorted(path for folder in PARTS for path in (ROOT / folder).glob("*.c"))
    given = [Path(name).resolve() for name in sys.argv[1:]]
    if unknown := [str(path) for path in given if path not in every]:
        print(f"tidy.py checks the C files of {', '.join(PARTS)}; not {', '.join(unknown)}", file=sys.stderr)
        return 2
    sources = given or every
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        results = list(pool.map(check, sources))
    print(f"clang-tidy: {sum(results)} of {len(results)} files clean")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
