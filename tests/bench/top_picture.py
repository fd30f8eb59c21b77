"""A picture of `vgpu top` on a terminal: `python tests/bench/top_picture.py docs/top.svg` writes it and prints it.

Programs of three tenants compute on one simulated H200; the picture shows the second refresh of `vgpu top`.
"""

from __future__ import annotations

import html
import os
import pty
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "daemon"), str(ROOT / "guest")]

from tests.daemon.running import ENVIRONMENT, vgpud_with_real_workers  # noqa: E402
from tests.shim.client import PRELUDE, environment  # noqa: E402

SHARES = """
gpus = "h200"
[[shares]]
name = "large"
memory_mib = 65536
weight = 300
[[shares]]
name = "small"
memory_mib = 8192
[[tokens]]
name = "train"
value = "token-of-train--"
share = "large"
[[tokens]]
name = "notebook"
value = "token-of-notebook"
share = "small"
"""
# For each token: MiB of device memory, and seconds between fills.
TENANTS = {"token-of-train--": (12288, 0.0), "token-of-notebook": (1024, 0.05), "": (256, 1.0)}
PROGRAM = """
context()
p = alloc({mib} << 20)
print("begun", flush=True)
while True:
    ok(cuda.cuMemsetD8_v2(p, 1, c_size_t(16 << 20)))
    time.sleep({pause_s})
"""
SIZE, WIDTH, HEIGHT, MARGIN = 13, 7.83, 18, 14  # in pixels; the first three are of a character


def screen(admin: Path) -> str:
    """Run `vgpu top` in a pseudo-terminal; returns the text of its second refresh."""
    said = b""

    def read(fd: int) -> bytes:
        nonlocal said
        data = os.read(fd, 65536)
        said += data
        return b""

    os.environ.update(ENVIRONMENT)
    program = "from vgpud.cli.main import vgpu; vgpu()"
    pty.spawn([sys.executable, "-c", program, "top", "-d", "3", "-n", "2", "--admin", str(admin)], read)
    return re.split(r"\x1b\[H\x1b\[J", said.decode().replace("\r", ""))[-1].strip("\n")


def picture(text: str) -> str:
    """An SVG image of a terminal that shows `text`."""
    lines = ["$ vgpu top", "", *text.splitlines()]
    width = max(map(len, lines)) * WIDTH + 2 * MARGIN
    height = len(lines) * HEIGHT + 2 * MARGIN
    rows = "\n".join(
        f'<text x="{MARGIN}" y="{MARGIN + HEIGHT * i + SIZE}" xml:space="preserve">{html.escape(line)}</text>'
        for i, line in enumerate(lines)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" role="img" '
        f'aria-label="vgpu top">\n<rect width="100%" height="100%" rx="8" fill="#1e1e1e"/>\n'
        f'<g font-family="monospace" font-size="{SIZE}" fill="#e6e6e6">\n{rows}\n</g>\n</svg>\n'
    )


def main() -> None:
    """Run the programs, print the text and write the picture."""
    programs = []
    with tempfile.TemporaryDirectory() as folder:
        for running in vgpud_with_real_workers(Path(folder), SHARES):
            for token, (mib, pause_s) in TENANTS.items():
                env = environment(str(running.endpoint), **({"VGPU_TOKEN": token} if token else {}))
                text = PRELUDE + PROGRAM.format(mib=mib, pause_s=pause_s)
                program = subprocess.Popen([sys.executable, "-c", text], env=env, stdout=subprocess.PIPE, text=True)
                assert program.stdout is not None
                assert program.stdout.readline() == "begun\n"
                programs.append(program)
            shown = screen(running.admin_path)
            for program in programs:
                program.kill()
                program.wait()
    print(shown)
    Path(sys.argv[1]).write_text(picture(shown))


main()
