"""What pyproject.toml cannot say: the wheel holds generated code, native libraries, manuals and completions.

The steps are those of the Makefile; an editable install leaves them to it.
"""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Distribution, find_packages, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent


class BuildWithNativeParts(build_py):
    def run(self) -> None:
        if not self.editable_mode:
            for step in (
                ["-m", "protocol.gen"],
                ["shim/build.py"],
                ["shim/build_cudart.py"],
                ["shim/build_compiler.py"],
                ["shim/build_cupti.py"],
                ["daemon/bench/build.py"],
                ["shim/build_notice.py"],
                ["pytorch/build.py"],
                ["daemon/executor/build_ffi.py"],
                ["-m", "deploy.packaging.share", "build/wheel"],
            ):
                subprocess.run([sys.executable, *step], cwd=ROOT, check=True)
            self.packages = [*find_packages("daemon"), *find_packages("guest")]
            files = [path.relative_to(ROOT) for path in (ROOT / "build/wheel/share").rglob("*") if path.is_file()]
            self.distribution.data_files = [(str(Path(*path.parent.parts[2:])), [str(path)]) for path in sorted(files)]
        super().run()
        if not self.editable_mode:
            libraries = Path(self.build_lib) / "vgpu_guest/_lib"
            shutil.copytree(ROOT / "build/guest", libraries, symlinks=True)
            for stem in ("libcuda", "libnvidia-ml"):
                self.name_without_links(libraries, stem)

    def name_without_links(self, folder: Path, stem: str) -> None:
        """A wheel holds no links, and copies under three names would be three libraries in one process.

        The library goes by the name that everything looks for; `libcuda.so` becomes an empty one that needs it.
        """
        versioned = next(folder.glob(f"{stem}.so.*.*"))
        versioned.replace(folder / f"{stem}.so.1")
        (folder / f"{stem}.so").unlink()
        compiler = shlex.split(os.environ.get("CC", "cc"))
        options = ["-shared", "-nostdlib", f"-Wl,--no-as-needed,-soname,{stem}.so,-rpath,$ORIGIN"]
        target = ["-o", str(folder / f"{stem}.so"), str(folder / f"{stem}.so.1")]
        subprocess.run([*compiler, *options, *target], check=True)


class NativeDistribution(Distribution):
    def has_ext_modules(self) -> bool:
        return True


setup(distclass=NativeDistribution, cmdclass={"build_py": BuildWithNativeParts})
