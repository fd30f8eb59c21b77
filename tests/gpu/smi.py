"""`vgpu smi` through vgpud beside NVIDIA's nvidia-smi on the same card, field by field.

`python tests/gpu/smi.py --out DIR` on a machine with a card. Both programs print each report: `-q -x` is compared by
element, `-q` by key, `--query-gpu` and `--query-compute-apps` by field, the table, `-L`, `dmon`, `pmon` and `topo -m`
by line. DIR has the output of each (`nvidia-smi.txt`, `vgpu-smi.txt`), and `smi.md` the differences: what nvidia-smi
alone shows, what `vgpu smi` alone shows, and unequal values. Readings that change between two calls are counted apart.
`--simulator GPU` puts a simulated device behind `vgpu smi`, to try the script.
"""

from __future__ import annotations

import argparse
import csv
import functools
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "daemon"), str(ROOT / "guest")]

LIMIT_S = 60
# Words in the names of readings that may change between two calls a second apart.
MOVING = (
    *("timestamp", "clock", "power", "pwr", "temp", "util", "memory", "fb", "bar1", "pstate", "performance_state"),
    *("reason", "throughput", "counters", "fan", "perf", "rxpci", "txpci", "link.gen", "link_gen", "samples"),
)
# A program that uses the device through vgpud: it holds a context and 256 MiB until the end of its input.
HOLDER = """
import ctypes, sys
cuda, context, address = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
assert not cuda.cuInit(0)
assert not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
assert not cuda.cuCtxSetCurrent(context)
assert not cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(256 << 20))
print("holds", flush=True)
sys.stdin.read()
"""
Fields = dict[str, str]
Side = Callable[..., str]


def is_moving(name: str) -> bool:
    """Whether a reading of that name may change from one call to the next."""
    return any(word in name.lower().replace(" ", "_") for word in MOVING)


def elements(text: str) -> Fields:
    """The leaves of an XML report by their paths; siblings of one name are numbered."""
    found: Fields = {}

    def visit(element: ElementTree.Element, path: str) -> None:
        if len(element) == 0:
            found[path] = (element.text or "").strip()
        counted: Counter[str] = Counter()
        amounts = Counter(child.tag for child in element)
        for child in element:
            counted[child.tag] += 1
            number = f"[{counted[child.tag]}]" if amounts[child.tag] > 1 else ""
            visit(child, f"{path}/{child.tag}{number}".lstrip("/"))

    visit(ElementTree.fromstring(text), "")
    return found


def keys(text: str) -> Fields:
    """The values of `-q` by the path of their headings, which indentation nests, and their key."""
    found: Fields = {}
    open_at: list[tuple[int, str]] = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("="):
            continue
        depth = len(line) - len(line.lstrip())
        open_at = [(at, title) for at, title in open_at if at < depth]
        key, colon, value = line.strip().partition(" : ") if " : " in line else line.strip().partition(": ")
        if colon:
            found["/".join([*(title for _at, title in open_at), key.strip()])] = value.strip()
        open_at.append((depth, key.strip()))
    return found


def cells(names: Sequence[str], text: str) -> Fields:
    """The values of a CSV report by line number and queried name, and the titles of its header."""
    header, *rows = csv.reader(text.splitlines(), skipinitialspace=True)
    found = {f"header {name}": title for name, title in zip(names, header, strict=True)}
    for at, row in enumerate(rows):
        found |= {f"{at} {name}": value for name, value in zip(names, row, strict=True)}
    return found


def lines(text: str) -> Fields:
    """The lines of a report by number."""
    return {f"line {at}": line for at, line in enumerate(text.splitlines(), 1)}


def columns(text: str) -> Fields:
    """The columns of dmon or pmon by title: the unit, then a value for each line."""
    titles, units, *rows = (line.lstrip("# ").split() for line in text.splitlines() if line.strip())
    found = {f"{title} (unit)": unit for title, unit in zip(titles, units, strict=False)}
    for at, row in enumerate(rows):
        found |= {f"{title} {at}": value for title, value in zip(titles, row, strict=False)}
    return found


def known_fields(text: str) -> list[list[str]]:
    """The fields in a help text of nvidia-smi such as --help-query-gpu, each with its aliases."""
    found = (re.findall(r'"([\w.\-]+)"', line) for line in text.splitlines() if line.startswith('"'))
    return [names for names in found if names]


def compare(title: str, real: Fields, shown: Fields) -> tuple[str, Counter[str]]:
    """The differences as Markdown, and the number of fields that are equal, moved, different or on one side alone."""
    counted: Counter[str] = Counter()
    rows: dict[str, list[str]] = {"nvidia-smi alone": [], "vgpu smi alone": [], "different": []}
    for name in dict.fromkeys([*real, *shown]):
        theirs, here = real.get(name), shown.get(name)
        if theirs == here:
            counted["equal"] += 1
        elif here is None:
            rows["nvidia-smi alone"].append(f"- `{name}`: `{theirs}`")
        elif theirs is None:
            rows["vgpu smi alone"].append(f"- `{name}`: `{here}`")
        elif is_moving(name) and _form(theirs) == _form(here):
            counted["moved"] += 1
        else:
            rows["different"].append(f"- `{name}`: `{theirs}` here `{here}`")
    counted.update({word: len(found) for word, found in rows.items()})
    parts = [f"## {title}\n\n" + ", ".join(f"{word} {counted[word]}" for word in ("equal", "moved", *rows))]
    parts += [f"### {word}\n\n" + "\n".join(found) for word, found in rows.items() if found]
    return "\n\n".join(parts), counted


def _form(value: str) -> str:
    """A reading with 0 for each number: "345 MHz" and "1980 MHz" have the same form."""
    return re.sub(r"\d+", "0", value)


def report(real: Side, shown: Side) -> str:
    """Every comparison, as Markdown with a summary first."""
    from vgpud.smi.field import APP_ALIASES, APPS, GPU, GPU_ALIASES

    parts, total = [], Counter[str]()

    def add(title: str, read: Callable[[str], Fields], *arguments: str) -> None:
        try:
            part, counted = compare(title, read(real(*arguments)), read(shown(*arguments)))
        except (RuntimeError, ValueError, ElementTree.ParseError) as error:
            part, counted = f"## {title}\n\nnot compared: {error}", Counter({"not compared": 1})
        parts.append(part)
        total.update(counted)

    add("-q -x", elements, "-q", "-x")
    add("-q", keys, "-q")
    for option, here in (("query-gpu", {*GPU, *GPU_ALIASES}), ("query-compute-apps", {*APPS, *APP_ALIASES})):
        there = known_fields(real(f"--help-{option}"))
        both = [names[0] for names in there if here.issuperset(names)]
        lacking = [name for names in there for name in names if name not in here]
        own = sorted(here.difference(*there))
        parts.append(
            f"## fields of --{option}\n\nequal {len(both)}\n\nnvidia-smi alone: {lacking}\n\nvgpu smi alone: {own}"
        )
        total.update({"field of nvidia-smi alone": len(lacking), "field of vgpu smi alone": len(own)})
        real(f"--{option}={','.join(names[0] for names in there)}", "--format=csv")  # for the log alone alone
        for style in ("csv", "csv,nounits"):
            query = (f"--{option}={','.join(both)}", f"--format={style}")
            add(f"--{option} --format={style}", functools.partial(cells, both), *query)
    add("-L", lines, "-L")
    add("table", lines)
    for letters in ("pucmt", "p", "u", "c", "m", "t"):
        add(f"dmon -s {letters}", columns, "dmon", "-c", "1", "-s", letters)
    add("dmon, by line", lines, "dmon", "-c", "1")
    add("pmon, by line", lines, "pmon", "-c", "1")
    add("topo -m", lines, "topo", "-m")
    summary = ", ".join(f"{word} {amount}" for word, amount in total.items() if amount)
    return "\n\n".join([f"# vgpu smi beside nvidia-smi\n\n{summary}", *parts]) + "\n"


def asker(command: Sequence[str], env: Mapping[str, str], log: Path) -> Side:
    """A function that runs `command` with its arguments and appends the output to `log`."""

    def ask(*arguments: str) -> str:
        done = subprocess.run([*command, *arguments], env=env, capture_output=True, text=True, timeout=LIMIT_S)
        said = done.stdout + done.stderr
        with log.open("a") as file:
            file.write(f"==== {log.stem} {' '.join(arguments)}: exit {done.returncode}\n{said}\n")
        if done.returncode:
            raise RuntimeError(f"{log.stem} {' '.join(arguments)[:60]}: exit {done.returncode}, {said[:300]}")
        return done.stdout

    return ask


def main() -> int:
    from vgpud.bench.side import Host, native

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("smi"), help="folder of the results (smi)")
    parser.add_argument("--libcuda", default="libcuda.so.1")
    parser.add_argument("--nvidia-smi", default="nvidia-smi")
    parser.add_argument("--simulator", metavar="GPU", help="a simulated device in place of the card")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    vgpu = "import sys; from vgpud.cli.main import vgpu; sys.exit(vgpu())"
    with tempfile.TemporaryDirectory(prefix="vgpu-smi-") as folder:
        backend = "simulator" if options.simulator else "cuda"
        with Host("unix", Path(folder), backend, options.simulator or "h100", options.libcuda) as host:
            env = host.side.of_program() | {
                "PYTHONPATH": os.pathsep.join([*sys.path[:3], os.environ.get("PYTHONPATH", "")])
            }
            real = asker(
                options.nvidia_smi.split(), native(options.libcuda).of_program(), options.out / "nvidia-smi.txt"
            )
            shown = asker([sys.executable, "-c", vgpu, "smi"], env, options.out / "vgpu-smi.txt")
            with subprocess.Popen([sys.executable, "-c", HOLDER], env=env, stdin=-1, stdout=-1) as holder:
                assert holder.stdin is not None
                assert holder.stdout is not None
                assert holder.stdout.readline() == b"holds\n"
                text = report(real, shown)
                holder.stdin.close()
    (options.out / "smi.md").write_text(text)
    print(text if options.simulator else text.splitlines()[2])
    return 0


if __name__ == "__main__":
    sys.exit(main())
