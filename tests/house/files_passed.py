"""Which files of the guest library a cuMemcpyHtoD and a launch pass: `python tests/house/files_passed.py`.

It lists the files whose functions run in the calling thread, in order of their first call; the measured call has been
made before. A header counts with the C file of its name; generated files are listed but not counted, because nobody
reads them to follow a call. The library is built with -finstrument-functions into build/passed.
"""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

sys.path.insert(0, str(ROOT / "shim"))


def build(folder: Path) -> Path:
    """Build an instrumented libcuda in `folder`; return its path."""
    from build import GUEST_LIBRARIES, INCLUDES, link
    from native import Toolchain

    plain = Toolchain.from_environment(whole_program=False)
    toolchain = replace(
        plain,
        # addr2line misreads the files of inline functions in DWARF 5.
        cflags=(*plain.cflags, "-O0", "-finstrument-functions", "-gdwarf-4"),
        ldflags=tuple(flag for flag in plain.ldflags if flag != "-Wl,-z,defs"),
    )
    objects = folder / "objects"
    objects.mkdir(parents=True, exist_ok=True)
    library = next(each for each in GUEST_LIBRARIES if each.stem == "libcuda")
    built = toolchain.compile(library.sources(), objects, INCLUDES)
    target = folder / "libcuda.so.580.0"
    link(library, target, [built[source] for source in library.sources()], toolchain)
    return target


def passed() -> dict[str, list[str]]:
    """The files that each call passes, in order of their first use; generated files are marked with a star."""
    folder = ROOT / "build/passed"
    library = build(folder)
    program = folder / "program"
    source = Path(__file__).with_suffix(".c")
    subprocess.run(["cc", "-O1", "-rdynamic", str(source), "-ldl", "-o", str(program)], check=True)
    command = [Path(sys.executable).parent / "vgpu", "run", "--", "env", f"LD_LIBRARY_PATH={folder}", program]
    out = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=120).stdout
    calls = [line.split() for line in out.splitlines()]
    offsets = sorted({offset for _, offset in calls})
    text = subprocess.run(
        ["addr2line", "-e", str(library), *offsets], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    places = dict(zip(offsets, (Path(line.rsplit(":", 1)[0]) for line in text.splitlines()), strict=True))
    files: dict[str, dict[str, None]] = {}
    for call, offset in calls:
        place = places[offset]
        files.setdefault(call, {})[place.stem + ("*" if "gen" in place.parts else "")] = None
    return {call: list(found) for call, found in files.items()}


def main() -> None:
    for call, files in passed().items():
        print(f"{call}: {sum(not name.endswith('*') for name in files)} files: {' '.join(files)}")


if __name__ == "__main__":
    main()
