"""NVIDIA's compiler from PyPI, and programs built with it."""

import hashlib
import os
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.pypi import packages

HERE = Path(__file__).resolve().parent
BUILT = HERE.parents[1] / "build/programs"
PACKAGES = ["nvidia-cuda-nvcc", "nvidia-cuda-runtime", "nvidia-nvvm", "nvidia-cuda-crt", "nvidia-cuda-cccl"]


@dataclass(frozen=True)
class Flavour:
    """One way in which users compile: the options that matter to a driver."""

    name: str
    options: tuple[str, ...]


PTX = Flavour("ptx", ("-gencode", "arch=compute_75,code=compute_75"))
PTX_90 = Flavour("ptx90", ("-gencode", "arch=compute_90,code=compute_90"))
DEFAULT = Flavour("default", ())  # machine code and PTX, both for the oldest architecture the compiler knows
SHARED = Flavour("shared-runtime", (*PTX.options, "-cudart", "shared"))
PER_THREAD = Flavour("per-thread-stream", (*PTX.options, "--default-stream", "per-thread"))
DEBUG = Flavour("debug", (*PTX.options, "-G", "-g"))
RELOCATABLE = Flavour("relocatable", (*PTX.options, "-rdc=true"))
RELOCATABLE_DEBUG = Flavour("relocatable-debug", (*RELOCATABLE.options, "-G"))
CALL_THE_DEVICE_RUNTIME = {"graph_conditions", "nested"}  # programs that link the device runtime
OF_HOPPER = {"clusters", "tensor_copy"}  # programs that need compute capability 9.0
MACHINE_CODE = Flavour("machine-code", ("-gencode", "arch=compute_90,code=sm_90"))


@dataclass(frozen=True)
class Toolchain:
    """An installed compiler; `root` holds bin, include and lib."""

    root: Path

    def build(self, source: str, flavour: Flavour = PTX) -> Path:
        """Compile `tests/programs/<source>.cu`, with `<source>.*.cu` if there are any, unless a build of the same
        sources, headers, compiler and options exists.

        Returns:
            The executable.
        Raises:
            RuntimeError: The compiler failed; the message contains its error output.
        """
        paths = [HERE / f"{source}.cu", *sorted(HERE.glob(f"{source}.*.cu"))]
        inputs = [path.read_bytes() for path in (*paths, *sorted(HERE.glob("*.h")))]
        inputs += [repr(flavour).encode(), str(self.root).encode()]
        built = BUILT / f"{source}-{flavour.name}-{hashlib.sha256(b'|'.join(inputs)).hexdigest()[:12]}"
        if built.exists():
            return built
        BUILT.mkdir(parents=True, exist_ok=True)
        partial = built.with_suffix(f".{os.getpid()}")
        command = [str(self.root / "bin/nvcc"), "-std=c++17", "-O2", *flavour.options]
        command += [f"-I{self.root / 'include'}", f"-L{self.library_folder()}", "-Wno-deprecated-gpu-targets"]
        command += ["-Xcompiler", "-Wall,-Wextra,-Wno-unused-function", "-o", str(partial), *map(str, paths)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if result.returncode:
            raise RuntimeError(f"nvcc {source}.cu ({flavour.name}) failed:\n{result.stderr[-4000:]}")
        partial.rename(built)
        return built

    def build_as_it_must_be(self, source: str) -> Path:
        """Compile with the options that the program requires."""
        relocatable = source in CALL_THE_DEVICE_RUNTIME
        return self.build(source, RELOCATABLE if relocatable else PTX_90 if source in OF_HOPPER else PTX)

    def library_folder(self) -> Path:
        """The folder of libcudart, to which this adds the unversioned name that a linker looks for."""
        folder = self.root / "lib"
        unversioned = folder / "libcudart.so"
        versioned = sorted(folder.glob("libcudart.so.*"))
        with suppress(FileExistsError):
            unversioned.symlink_to(versioned[0].name)
        return folder


def cuda13() -> Toolchain:
    """nvcc 13.0: the newest nvcc whose PTX is accepted by the driver version that vgpu reports (580)."""
    return Toolchain(packages(*(f"{package}==13.0.*" for package in PACKAGES)) / "nvidia/cu13")
