"""docs/operations.md: every command in it works as printed, and its configuration is one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from vgpud.config import parse_config

from tests.daemon.running import ENVIRONMENT, Running

DOCUMENT = (Path(__file__).parents[3] / "docs/operations.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOCUMENT, re.DOTALL)


def test_the_configuration_is_one():
    config = parse_config("\n".join(blocks("toml")), source="operations.md")
    assert config.share(config.default_share).memory_nbytes == 8 << 30


def test_the_commands_work(shared: Running, tmp_path: Path):
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "vgpu").write_text(
        f'#!/bin/sh\nexec {sys.executable} -c "from vgpud.cli.main import vgpu; vgpu()" "$@"\n'
    )
    (folder / "vgpu").chmod(0o755)
    path = f"{folder}:{os.environ['PATH']}"
    env = ENVIRONMENT | {"PATH": path, "RUNTIME_DIRECTORY": str(shared.admin_path.parent)}  # where the commands look
    lines = [line.removeprefix("$ ") for block in blocks("console") for line in block.splitlines()]
    assert len(lines) == 15
    for line in lines:
        line = line.replace("/run/vgpu/admin.sock", str(shared.admin_path))
        done = subprocess.run(["sh", "-c", line], env=env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{line}: {done.stderr}"
    assert shared.admin.get("tokens") == {"tokens": []}
