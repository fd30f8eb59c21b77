"""`with_tutorial.py FILE` runs one of Triton's tutorials, unchanged, without its measurements.

A tutorial compares its kernels with torch's operators, then measures both for minutes. Triton's autotuner measures too:
here each of its configurations runs once, and the first is chosen. Of the tests of attention, which pytest collects on
a GPU, the smallest run, with the one configuration that the tutorial has for pytest.
"""

import contextlib
import io
import itertools
import os
import runpy
import sys
import time
from pathlib import Path

import triton
import triton.testing

SMALLEST = {"Z": 1, "H": 2, "N_CTX": 128, "warp_specialize": False}
MODES = (("fwd", "triton-fp8"), ("bwd", "triton-fp16"))  # the backward pass is compared after the forward one


def run_once(function, *_, quantiles=None, **__):
    """Stands in for triton.testing.do_bench, which repeats `function` for a tenth of a second."""
    function()
    return [0.0] * len(quantiles) if quantiles else 0.0


def run(path):
    names = runpy.run_path(str(path), run_name="__main__")
    if "attention" in path.name:
        for width, causal, (mode, provider) in itertools.product((64, 128), (False, True), MODES):
            names["test_op"](**SMALLEST, HEAD_DIM=width, causal=causal, mode=mode, provider=provider)
            print(f"attention: {mode} {provider} heads of {width}{' causal' * causal}", flush=True)


begin = time.monotonic()
os.environ["PYTEST_VERSION"] = "1"  # by this the tutorial of attention knows pytest
triton.testing.do_bench = run_once
triton.testing.Mark.run = lambda self, *args, **kwargs: None
file = Path(sys.argv[1])
with contextlib.redirect_stdout(io.StringIO()) as output:
    try:
        run(file)
    finally:
        print(output.getvalue(), file=sys.stderr)
if "\N{CROSS MARK}" in output.getvalue():  # how a tutorial says that the results differ
    sys.exit(f"{file.name}: results differ")
print(f"ok {file.name} with triton {triton.__version__} in {time.monotonic() - begin:.0f} s")
