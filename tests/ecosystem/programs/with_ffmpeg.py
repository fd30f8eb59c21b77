"""ffmpeg's CUDA filters beside its filters on the CPU: `with_ffmpeg.py FFMPEG`, under `vgpu run`."""

import math
import subprocess
import sys
import time

SIZE, FRAMES = (128, 96), 4
SOURCE = f"testsrc2=s={SIZE[0]}x{SIZE[1]}:r=10:d={FRAMES / 10},format=yuv420p"
ROUND = "hwupload,{},hwdownload,format=yuv420p"
SECOND = "color=c=red:s=32x24:r=10:d=0.4,format=yuv420p"
# Name, filters on the device, filters on the CPU, the least ratio of signal to noise in dB (None: the same bytes).
# yadif on the device decides ties of its scores otherwise (vf_yadif_cuda.cu: without the CPU's -1). Scaling on the CPU
# is in fixed point, with other coefficients.
CASES = (
    ("hwupload, hwdownload", "hwupload,hwdownload,format=yuv420p", "null", None),
    ("yadif", ROUND.format("yadif_cuda"), "yadif", 40.0),
    ("yadif=1", ROUND.format("yadif_cuda=mode=1"), "yadif=mode=1", 40.0),
    ("thumbnail", ROUND.format("thumbnail_cuda=n=4"), "thumbnail=n=4", None),
    ("overlay", "hwupload[a];{},hwupload[b];[a][b]overlay_cuda=x=16:y=8,hwdownload,format=yuv420p",
     "null[a];{}[b];[a][b]overlay=x=16:y=8", None),
    ("scale, nearest", ROUND.format("scale_cuda=64:48:interp_algo=nearest"), "scale=64:48:flags=neighbor", None),
    ("scale, bilinear", ROUND.format("scale_cuda=64:48:interp_algo=bilinear"), "scale=64:48:flags=bilinear", 20.0),
    ("scale, bicubic", ROUND.format("scale_cuda=256:192:interp_algo=bicubic"), "scale=256:192:flags=bicubic", 20.0),
    ("scale, lanczos", ROUND.format("scale_cuda=256:192:interp_algo=lanczos"), "scale=256:192:flags=lanczos", 20.0),
)  # fmt: skip
DEVICE = ("-init_hw_device", "cuda=cu", "-filter_hw_device", "cu")


def frames(*options: str) -> bytes:
    command = [sys.argv[1], "-hide_banner", "-loglevel", "error", *options, "-f", "rawvideo", "-"]
    return subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE).stdout


def filtered(chain: str) -> tuple[str, ...]:
    return "-filter_complex", f"{SOURCE},{chain.format(SECOND)}"


def ratio_db(one: bytes, other: bytes) -> float:
    noise = sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) / len(one)
    return 10 * math.log10(255**2 / noise) if noise else math.inf


def main() -> int:
    begin = time.monotonic()
    wrong = 0
    for name, device, cpu, least_db in CASES:
        got, expected = frames(*DEVICE, *filtered(device)), frames(*filtered(cpu))
        db = ratio_db(got, expected) if len(got) == len(expected) else -math.inf
        well = len(got) > 0 and (got == expected if least_db is None else db >= least_db)
        wrong += not well
        print(f"{'ok' if well else 'WRONG'} {name}: {len(got)} bytes, {db:.1f} dB", flush=True)
    if not wrong:
        print(f"ok ffmpeg in {time.monotonic() - begin:.0f} s")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
