"""A worker drops its copies of the launcher's pages that it has changed back, and no others."""

from __future__ import annotations

import subprocess
from pathlib import Path

from vgpud.worker.template import ranges

from tests.daemon.running import ROOT, start_client, vgpud_with_real_workers
from tests.patience import PATIENCE_S

HERE = Path(__file__).parent
SMAPS = """\
7f0000000000-7f0000002000 rw-p 00000000 00:00 0
Rss:                   8 kB
VmFlags: rd wr mr mw me ac sd
7f0000002000-7f0000003000 rw-p 00000000 00:00 0    [stack]
VmFlags: rd wr mr mw me gd ac
7f0000003000-7f0000004000 rw-p 00000000 00:00 0
VmFlags: rd wr mr mw me wf ac
7f0000004000-7f0000005000 r--p 00000000 00:00 0
VmFlags: rd mr mw me ac
7f0000005000-7f0000006000 rw-s 00000000 00:00 0
VmFlags: rd wr sh mr mw me ms ac
7f0000006000-7f0010000000 rw-p 00000000 00:00 0
VmFlags: rd wr mr mw me ac nr
7f0010000000-7f0010001000 rw-p 00003000 08:01 17   /usr/lib/a library.so
VmFlags: rd wr mr mw me ac
"""


def test_stacks_and_memory_that_a_child_does_not_inherit_are_left_alone():
    assert list(ranges(SMAPS.splitlines())) == [(0x7F0000000000, 0x2000), (0x7F0010000000, 0x1000)]


def test_pages_that_equal_the_launcher_s_are_dropped(tmp_path):
    program = tmp_path / "template"
    sources = [
        HERE / "vgt_template.c",
        *(ROOT / "daemon/executor" / name for name in ("vgx_template.c", "vgx_control.c")),
    ]
    command = ["cc", "-O1", "-Wall", "-Werror", "-pthread", f"-I{ROOT / 'daemon/executor'}", "-o", program, *sources]
    subprocess.run(command, check=True, timeout=PATIENCE_S)
    subprocess.run([program], check=True, timeout=PATIENCE_S)


def test_a_worker_that_waits_for_its_client_has_the_launcher_s_pages(tmp_path):
    for running in vgpud_with_real_workers(tmp_path):
        client = start_client(running)
        [session] = running.status()["sessions"]
        maps = Path(f"/proc/{session['worker_pid']}/maps").read_text()
        assert "memfd:vgpu-template" in maps
        client.kill()
        client.communicate()
