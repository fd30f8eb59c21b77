"""vgpu's three runtime libraries, and NVIDIA's of the same majors from PyPI."""

from dataclasses import dataclass
from pathlib import Path

from tests.pypi import packages

ROOT = Path(__file__).resolve().parents[2]
OURS = ROOT / "build/guest/cudart"


@dataclass(frozen=True)
class Major:
    """One major version. `requirement` is the PyPI package whose exported names vgpu's library has."""

    number: int
    soname: str
    requirement: str
    folder: str  # the package's folder with include and lib
    exports: str  # file name of the committed list of exported names
    layout_requirement: str  # PyPI package whose headers define the committed layouts

    @property
    def ours(self) -> Path:
        return OURS / str(self.number) / self.soname

    def theirs(self) -> Path:
        """NVIDIA's library; downloaded on first use."""
        return packages(self.requirement) / self.folder / "lib" / self.soname

    def include(self) -> Path:
        """NVIDIA's headers; downloaded on first use."""
        return packages(self.layout_requirement) / self.folder / "include"

    def names(self) -> set[str]:
        return set((ROOT / "protocol/data" / self.exports).read_text().split())


CU11, CU12 = "nvidia-cuda-runtime-cu11==11.8.89", "nvidia-cuda-runtime-cu12==12.8.90"
MAJORS = (
    Major(11, "libcudart.so.11.0", CU11, "nvidia/cuda_runtime", "libcudart-11.0-exports.txt", CU11),
    Major(12, "libcudart.so.12", CU12, "nvidia/cuda_runtime", "libcudart-12-exports.txt", CU12),
    Major(13, "libcudart.so.13", "nvidia-cuda-runtime==13.5.37", "nvidia/cu13", "libcudart-13-exports.txt",
          "nvidia-cuda-runtime==13.0.96"),
)  # fmt: skip
BY_NUMBER = {major.number: major for major in MAJORS}
# NVIDIA's version whose behaviour vgpu's runtime must equal: the newest whose driver is not newer than the driver
# release that vgpu reports.
COMPARED = {11: CU11, 12: CU12, 13: "nvidia-cuda-runtime==13.0.96"}


def compared(major: Major) -> Path:
    """NVIDIA's library whose behaviour vgpu's library must equal; downloaded on first use."""
    return packages(COMPARED[major.number]) / major.folder / "lib" / major.soname
