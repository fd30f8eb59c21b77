"""Put vgpu-torch where `vgpu run` finds it: `python pytorch/build.py` copies the package into build/guest/torch.

The folder has the contents of an installation, package and metadata, so that torch finds the entry point. The Makefile
and setup.py use this script.
"""

import shutil
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
TARGET = HERE.parent / "build/guest/torch"


def main() -> int:
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    shutil.rmtree(TARGET, ignore_errors=True)
    shutil.copytree(HERE / "vgpu_torch", TARGET / "vgpu_torch", ignore=shutil.ignore_patterns("__pycache__"))
    metadata = TARGET / f"vgpu_torch-{project['version']}.dist-info"
    metadata.mkdir()
    header = {"Metadata-Version": "2.1", "Name": project["name"], "Version": project["version"]}
    (metadata / "METADATA").write_text("".join(f"{key}: {value}\n" for key, value in header.items()))
    sections = []
    for group, entries in project["entry-points"].items():
        sections.append(f"[{group}]\n" + "".join(f"{name} = {place}\n" for name, place in entries.items()))
    (metadata / "entry_points.txt").write_text("\n".join(sections))
    return 0


if __name__ == "__main__":
    sys.exit(main())
