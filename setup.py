"""What pyproject.toml cannot say: the wheel holds generated code and two native libraries.

The steps are those of the Makefile; an editable install leaves them to it.
"""

import subprocess
import sys
from pathlib import Path

from setuptools import Distribution, find_packages, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent


class BuildWithNativeParts(build_py):
    def run(self) -> None:
        if not self.editable_mode:
            for step in (["-m", "protocol.gen"], ["shim/build.py"], ["daemon/executor/build_ffi.py"]):
                subprocess.run([sys.executable, *step], cwd=ROOT, check=True)
            self.packages = find_packages("daemon")
        super().run()


class NativeDistribution(Distribution):
    def has_ext_modules(self) -> bool:
        return True


setup(distclass=NativeDistribution, cmdclass={"build_py": BuildWithNativeParts})
