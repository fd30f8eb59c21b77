"""Where kernels' parameters lie: the same from PTX, from machine code, and from fat binaries of both."""

from __future__ import annotations

import subprocess

import pytest
from vgpusim.image.error import ImageError
from vgpusim.image.kernel_params import KernelParams, Layout
from vgpusim.ptx.error import PtxError

from tests.programs.toolchain import cuda13

SOURCE = """
struct S { char c; double d; float f[3]; };
struct Large { int x[1100]; };
extern "C" __global__ void none() {}
extern "C" __global__ void some(int a, char b, double *p, S s, short t) { *p = a + b + s.d + t; }
extern "C" __global__ void aligned(char a, float4 v, long long *q) { *q = a + v.x; }
extern "C" __global__ void unused(int a, float2 b, int c) {}
extern "C" __global__ void large(Large l, int i, int *o) { *o = l.x[i]; }
"""
KERNELS: dict[str, Layout] = {
    "none": (),
    "some": ((0, 4), (4, 1), (8, 8), (16, 32), (48, 2)),
    "aligned": ((0, 1), (16, 16), (32, 8)),
    "unused": ((0, 4), (8, 8), (16, 4)),
    "large": ((0, 4400), (4400, 4), (4408, 8)),
}
FORMS = {
    "ptx": ["-ptx", "-arch=compute_75"],
    "cubin of sm_75": ["-cubin", "-arch=sm_75"],
    "cubin of sm_90": ["-cubin", "-arch=sm_90"],
    "cubin of sm_100": ["-cubin", "-arch=sm_100"],
    "fatbin": ["-fatbin", "-gencode", "arch=compute_75,code=[sm_75,compute_75]"],
    "fatbin of machine code": ["-fatbin", "-gencode", "arch=compute_90,code=sm_90"],
}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("images")
    (source := folder / "kernels.cu").write_text(SOURCE)
    images = {}
    for number, (form, options) in enumerate(FORMS.items()):
        image = folder / str(number)
        subprocess.run([cuda13().root / "bin/nvcc", *options, "-o", image, source], check=True, timeout=300)
        images[form] = image.read_bytes()
    return images


@pytest.mark.parametrize("form", FORMS)
def test_every_form_tells_the_same(compiled: dict[str, bytes], form: str) -> None:
    params = KernelParams(compiled[form])
    assert {name: params.layout(name) for name in KERNELS} == KERNELS
    assert params.layout("missing") is None


def test_what_is_no_image_is_refused() -> None:
    with pytest.raises(ImageError):
        KernelParams(b"\x7fELF").layout("none")
    with pytest.raises(ImageError):
        KernelParams(b"\x50\xed\x55\xba\x01\x00")


@pytest.mark.parametrize("form", ["cubin of sm_90", "fatbin of machine code"])
def test_damage_is_an_error_or_no_answer(compiled: dict[str, bytes], form: str) -> None:
    """Every 97th byte is damaged in turn: the answer is an error, None, or a layout without negative numbers."""
    image, whole = compiled[form], KernelParams(compiled[form])
    assert whole.layout("some") == KERNELS["some"]
    for place in range(0, len(image), 97):
        damaged = bytearray(image)
        damaged[place] ^= 0xFF
        try:
            layout = KernelParams(bytes(damaged)).layout("some")
        except (ImageError, PtxError):
            continue
        assert layout is None or all(offset >= 0 and nbytes >= 0 for offset, nbytes in layout)


def test_every_prefix_is_an_error_or_no_answer(compiled: dict[str, bytes]) -> None:
    image = compiled["cubin of sm_75"]
    for nbytes in range(0, len(image), 61):
        try:
            layout = KernelParams(image[:nbytes]).layout("some")
        except (ImageError, PtxError):
            continue
        assert layout in (None, KERNELS["some"])
