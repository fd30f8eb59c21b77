"""Host drivers of other versions: `build(version, folder)` builds a libcuda.so.1 that reports that CUDA version.

It exports the functions that, according to protocol/data, a driver of this version has, and forwards them to vgpu's own
libcuda. A library newer than NEWEST_KNOWN also exports a function that vgpu does not know.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "protocol/data/proc-address-580.tsv"
OWN = ROOT / "build/guest/libcuda.so.1"
NEWEST_KNOWN = 13000
UNHEARD = "cuHostsNewestFunction"

HEAD = """#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
__attribute__((used, visibility("hidden"))) void *table[%(count)d];
__attribute__((constructor)) static void resolve(void) {
  static const char *const names[] = {%(names)s};
  void *own = dlopen("%(own)s", RTLD_NOW | RTLD_LOCAL);
  if (!own) {
    fprintf(stderr, "%%s\\n", dlerror());
    abort();
  }
  for (int i = 0; i < %(count)d; i++)
    table[i] = dlsym(own, names[i]);
}
int cuDriverGetVersion(int *version) { *version = %(version)d; return 0; }
"""


def exports(version: int) -> list[str]:
    """The functions that a driver of this version exports, older ABIs of a function included."""
    since: dict[str, int] = {}
    for line in DATA.read_text().splitlines():
        for step in line.split("\t")[2:]:
            number, _, name = step.partition(":")
            if name.startswith("cu"):
                since[name] = min(int(number), since.get(name, int(number)))
    return sorted(name for name, first in since.items() if first <= version and name != "cuDriverGetVersion")


def build(version: int, folder: Path, **replaced: str) -> Path:
    """`replaced`: C by the names of functions, in place of vgpu's."""
    names = [name for name in exports(version) if name not in replaced]
    own = [name for name in names if name.encode() + b"\0" in OWN.read_bytes()]
    quoted = ", ".join(f'"{name}"' for name in own)
    text = HEAD % {"count": len(own), "names": quoted, "own": OWN, "version": version}
    jumps = "".join(
        f'__asm__(".globl {name}\\n.type {name}, @function\\n{name}:\\n jmp *table+{8 * i}(%rip)");\n'
        for i, name in enumerate(own)
    )
    unheard = f"int {UNHEARD}(void) {{ return 0; }}\n" if version > NEWEST_KNOWN else ""
    folder.mkdir(parents=True, exist_ok=True)
    source, library = folder / "standin.c", folder / "libcuda.so.1"
    source.write_text(text + jumps + unheard + "".join(replaced.values()))
    cc = os.environ.get("CC", "gcc")
    options = ["-shared", "-fPIC", "-O1", "-Wl,-soname,libcuda.so.1"]
    partial = folder / f".{os.getpid()}.so"  # several tests may build it at once
    subprocess.run([cc, *options, "-o", str(partial), str(source), "-ldl"], check=True)
    return partial.rename(library)
