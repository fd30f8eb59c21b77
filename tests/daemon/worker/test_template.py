"""A worker drops its copies of the launcher's pages that it has changed back, and no others."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from vgpud.worker.template import ranges

from tests.daemon.running import ROOT, start_client, vgpud_with_real_workers, wait_until
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
7f0010000000-7f0010041000 rw-p 00003000 08:01 17   /usr/lib/a library.so
VmFlags: rd wr mr mw me ac
7f0010041000-7f0010081000 rw-p 00000000 00:00 0
VmFlags: rd wr mr mw me ac sd
"""


def test_stacks_and_memory_that_a_child_does_not_inherit_are_left_alone():
    assert list(ranges(SMAPS.splitlines())) == [
        (0x7F0000000000, 0x2000, False),
        (0x7F0010000000, 0x41000, False),
        (0x7F0010041000, 0x40000, True),
    ]


def test_pages_that_equal_the_launcher_s_are_dropped(tmp_path):
    program = tmp_path / "template"
    sources = [
        HERE / "vgt_template.c",
        *(ROOT / "daemon/executor" / name for name in ("vgx_template.c", "vgx_fold.c", "vgx_control.c")),
    ]
    command = ["cc", "-O1", "-Wall", "-Werror", "-pthread", f"-I{ROOT / 'daemon/executor'}", "-o", program, *sources]
    subprocess.run(command, check=True, timeout=PATIENCE_S)
    subprocess.run([program], check=True, timeout=PATIENCE_S)


def test_a_worker_that_waits_for_its_client_has_the_launcher_s_pages_and_no_python(tmp_path):
    def places(pid, access):
        lines = [line.split() for line in Path(f"/proc/{pid}/maps").read_text().splitlines()]
        assert any("/memfd:vgpu-template" in words for words in lines)
        return [[int(end, 16) for end in words[0].split("-")] for words in lines if words[1] == access]

    for running in vgpud_with_real_workers(tmp_path):
        client = start_client(running)
        [session] = running.status()["sessions"]
        pid = session["worker_pid"]
        [launcher] = re.findall(r"PPid:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
        used = places(launcher, "rw-p")

        def folded(pid=pid, used=used):
            return sum(end - at for at, end in places(pid, "---p") if any(a <= at < end <= b for a, b in used))

        wait_until(lambda: folded() > 2 << 20)  # the client is attached before its worker begins to serve
        client.kill()
        client.communicate()
