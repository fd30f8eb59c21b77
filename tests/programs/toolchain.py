"""NVIDIA's compiler from PyPI, and programs built with it."""

import hashlib
import os
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.patience import PATIENCE_S
from tests.pypi import INSTALLED, packages

HERE = Path(__file__).resolve().parent
BUILT = HERE.parents[1] / "build/programs"
PACKAGES = ["nvidia-cuda-nvcc", "nvidia-cuda-runtime", "nvidia-nvvm", "nvidia-cuda-crt", "nvidia-cuda-cccl"]


@dataclass(frozen=True)
class Flavour:
    """One way in which users compile: the options that matter to a driver, and how libcudart is linked."""

    name: str
    options: tuple[str, ...]
    runtime: str = "static"


PTX = Flavour("ptx", ("-gencode", "arch=compute_75,code=compute_75"))
PTX_90 = Flavour("ptx90", ("-gencode", "arch=compute_90a,code=compute_90a"))
DEFAULT = Flavour("default", ())  # machine code and PTX, both for the oldest architecture the compiler knows
SHARED = Flavour("shared-runtime", PTX.options, "shared")
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
        """Build `tests/programs/<source>.cu`, with `<source>.*.cu` if there are any, unless a build of the same
        sources, headers, compiler and options exists.

        Returns:
            The executable.
        Raises:
            RuntimeError: The compiler failed; the message contains its error output.
        """
        paths = [HERE / f"{source}.cu", *sorted(HERE.glob(f"{source}.*.cu"))]
        objects = [self._compile(path, flavour.options) for path in paths]
        built = self._name(f"{source}-{flavour.name}", *(str(file).encode() for file in objects))
        if not built.exists():
            command = ["-cudart", flavour.runtime, f"-L{self.library_folder()}", *map(str, objects)]
            self._run(command, flavour.options, built)
        return built

    def _compile(self, path: Path, options: tuple[str, ...]) -> Path:
        """The object file of one source; flavours that differ in the runtime alone share it."""
        headers = [file.read_bytes() for file in sorted(HERE.glob("*.h"))]
        built = self._name(path.stem, path.read_bytes(), *headers, repr(options).encode(), suffix=".o")
        if not built.exists():
            command = ["-c", f"-I{self.root / 'include'}", "-Xcompiler", "-Wall,-Wextra,-Wno-unused-function"]
            self._run([*command, str(path)], options, built)
        return built

    def _name(self, start: str, *inputs: bytes, suffix: str = "") -> Path:
        """Where a file that depends on this compiler and `inputs` is built."""
        digest = hashlib.sha256(b"|".join([*inputs, str(self.root).encode()])).hexdigest()
        return BUILT / f"{start}-{digest[:12]}{suffix}"

    def _run(self, arguments: list[str], options: tuple[str, ...], built: Path) -> None:
        """Make `built`, which appears complete or not at all."""
        BUILT.mkdir(parents=True, exist_ok=True)
        partial = built.with_name(f"{os.getpid()}-{built.name}")
        command = [str(self.root / "bin/nvcc"), "-std=c++17", "-O2", *options, "-Wno-deprecated-gpu-targets"]
        result = subprocess.run(
            [*command, "-o", str(partial), *arguments], capture_output=True, text=True, timeout=PATIENCE_S
        )
        if result.returncode:
            raise RuntimeError(f"nvcc for {built.name} failed:\n{result.stderr[-4000:]}")
        partial.rename(built)

    def build_as_it_must_be(self, source: str) -> Path:
        """Compile with the options that the program requires."""
        relocatable = source in CALL_THE_DEVICE_RUNTIME
        return self.build(source, RELOCATABLE if relocatable else PTX_90 if source in OF_HOPPER else PTX)

    def library_folder(self) -> Path:
        """The folder of libcudart, to which this adds the unversioned name that a linker looks for."""
        if INSTALLED:
            return self.root / "lib64"
        folder = self.root / "lib"
        unversioned = folder / "libcudart.so"
        versioned = sorted(folder.glob("libcudart.so.*"))
        with suppress(FileExistsError):
            unversioned.symlink_to(versioned[0].name)
        return folder


def cuda13() -> Toolchain:
    """nvcc 13.0: the newest nvcc whose PTX is accepted by the driver version that vgpu reports (580)."""
    if INSTALLED:
        return Toolchain(Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")))
    return Toolchain(packages(*(f"{package}==13.0.*" for package in PACKAGES)) / "nvidia/cu13")
