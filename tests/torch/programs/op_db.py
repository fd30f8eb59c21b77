"""`op_db.py values DTYPE | dtypes | errors | devices [--samples N] [--every N]`: torch's operators on the device.

values: compares the CPU's and the device's results and gradients of each operator of op_db: equal bits, or not.
dtypes: with data types that dtypesIfCUDA lists the first sample runs and gives what torch's meta kernels say, dtypes,
shapes and devices; with all others one of the samples raises.
errors: torch's own inputs that must raise on CUDA raise the type and text that torch expects.
devices: with each tensor argument in turn on the CPU, the call raises, and its text names the difference.
dtypes and errors judge as test_dtypes and test_errors of torch's own suite do: operators that it runs on the CPU alone
are left out, entries that it expects to fail on CUDA may fail in `dtypes`, and must fail in `errors`.
It prints a line `operator TAB detail TAB verdict` for each deviation, then `checked TAB operators TAB counts`.
"""

import argparse
import collections
import itertools
import random
import re
import signal
import sys
import time
import unittest
import warnings

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.common_device_type import onlyCPU
from torch.testing._internal.common_dtype import all_types_and_complex_and
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

SAMPLE_TIMEOUT_S = 600
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
CLOSE_HALF = {"rtol": 1.6e-2, "atol": 1e-2}  # rtol is torch.testing's for bfloat16, whose significand has 8 bits
DTYPES = sorted(all_types_and_complex_and(torch.bool, torch.half, torch.bfloat16, torch.complex32), key=str)
META_NEEDS_DEVICE = re.compile("_batch_norm_with_update|jiterator_.*")  # cuDNN is asked, or the kernel is launched


class TimedOut(Exception):
    pass


def on_alarm(*_):
    raise TimedOut


def seed():
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)


def on_cuda(value):
    if isinstance(value, torch.Tensor):
        moved = value.detach().cuda()
        if value.layout == torch.strided and value.untyped_storage().nbytes() > value.numel() * value.itemsize:
            whole = torch.empty(0, dtype=value.dtype).set_(value.untyped_storage()).cuda()  # the whole storage
            moved = whole.as_strided(value.shape, value.stride(), value.storage_offset())
            moved = moved.conj() if value.is_conj() else moved
            moved = torch._neg_view(moved) if value.is_neg() else moved
        return moved.requires_grad_(value.requires_grad)
    if value == "cpu" or value == torch.device("cpu"):
        return "cuda"
    return value


def tensors(value):
    return [leaf for leaf in tree_flatten(value)[0] if isinstance(leaf, torch.Tensor)]


def run(op, sample, arguments, backward):
    """Run the operator; return its results and, if `backward`, the gradients of all inputs."""
    seed()
    value, args, kwargs = arguments
    result = op(value, *args, **kwargs)
    if not backward:
        return tensors(result)
    found = tensors(sample.output_process_fn_grad(result))
    outputs = [t for t in found if t.requires_grad and (t.is_floating_point() or t.is_complex())]
    inputs = [t for t in tensors(arguments) if t.requires_grad]
    if outputs and inputs:
        ones = [torch.ones_like(t) for t in outputs]
        gradients = torch.autograd.grad(outputs, inputs, ones, allow_unused=True)
        found += [g for g in gradients if g is not None]
    return found


def plain(tensor):
    tensor = tensor.detach()
    tensor = tensor.to_dense() if tensor.layout != torch.strided else tensor
    tensor = tensor.cpu().resolve_conj().resolve_neg()
    return tensor.to(torch.complex64) if tensor.dtype == torch.complex32 else tensor


def compare(cpu, cuda):
    """The verdict: "exact", "close", or how the results differ."""
    if len(cpu) != len(cuda):
        return f"{len(cuda)} results instead of {len(cpu)}"
    verdict = "exact"
    for x, y in zip(cpu, cuda, strict=True):
        if x.numel() and x.device.type == "cpu" and not y.is_cuda:
            verdict = "result on the CPU" if verdict == "exact" else verdict
        x, y = plain(x), plain(y)
        if (x.shape, x.dtype) != (y.shape, y.dtype):
            return f"{tuple(y.shape)} {y.dtype} instead of {tuple(x.shape)} {x.dtype}"
        if torch.allclose(x, y, rtol=0, atol=0, equal_nan=True):
            continue
        if not torch.allclose(
            x, y, equal_nan=True, **(CLOSE_HALF if x.dtype in (torch.half, torch.bfloat16) else CLOSE)
        ):
            return "other values"
        verdict = "close"
    return verdict


def from_numpy(op, dtype, given):
    """The results of op_db's NumPy reference, as tensors; float32 replaces bfloat16, which NumPy does not have."""
    wide = torch.float32 if dtype == torch.bfloat16 else dtype
    value, args, kwargs = tree_map(lambda x: x.detach().to(wide).numpy() if isinstance(x, torch.Tensor) else x, given)
    found = op.ref(value, *args, **kwargs)
    return [torch.as_tensor(part).to(dtype) for part in (found if isinstance(found, tuple) else [found])]


def check_values(op, dtype, samples):
    """One verdict for the operator; None where there is nothing to compare."""
    backward = op.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
    seed()
    verdicts = []
    for sample in itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=backward), samples):
        given = (sample.input, sample.args, sample.kwargs)
        moved = tree_map(on_cuda, given)
        if op.name == "tensor_split":
            moved = (moved[0], *given[1:])  # its indices must be on the CPU
        try:
            cpu = run(op, sample, given, backward)
        except TimedOut:
            raise
        except Exception as error:
            if op.name.startswith("jiterator"):  # the CPU has no jiterator
                verdicts.append(compare(from_numpy(op, dtype, given), run(op, sample, moved, False)))
                continue
            try:
                run(op, sample, moved, backward)
            except type(error):
                continue
            return f"the CPU raises: {first_line(error)}"
        verdicts.append(compare(cpu, run(op, sample, moved, backward)))
    worst = [v for v in verdicts if v not in ("exact", "close")] or [v for v in verdicts if v == "close"] or verdicts
    return worst[0] if worst else None


def first_line(error):
    return f"{type(error).__name__}: {str(error).splitlines()[0][:140] if str(error) else ''}"


def timed(function, *arguments):
    """The function's verdict, or a text that names the exception it raised."""
    signal.alarm(SAMPLE_TIMEOUT_S)
    try:
        return function(*arguments)
    except TimedOut:
        return "timed out"
    except Exception as error:
        return f"raises {first_line(error)}"
    finally:
        signal.alarm(0)


def values(ops, options):
    dtype = getattr(torch, options.dtype)
    for op in ops:
        on_both = dtype in op.dtypes and dtype in (op.dtypes if op.dtypesIfCUDA is None else op.dtypesIfCUDA)
        if on_both:
            yield op, options.dtype, timed(check_values, op, dtype, options.samples)


def on_cuda_in_torchs_suite(ops):
    return [op for op in ops if onlyCPU not in op.decorators]


def must_fail(op, test):
    """Whether torch's own suite expects `test` of TestCommon to fail for the operator on CUDA."""
    named = [d for d in op.decorators if getattr(d, "test_name", None) == test]
    expected = [d for d in named if unittest.expectedFailure in d.decorators]
    return any(d.is_active("TestCommon", test, "cuda", None, {}) for d in expected)


def check_dtype(op, dtype, supported):
    seed()
    try:
        inputs = list(itertools.islice(op.sample_inputs("cuda", dtype), 1)) if supported else []
    except TimedOut:
        raise
    except Exception as error:
        return f"no sample: {first_line(error)}"
    if supported:
        error = refusal(op, inputs)
        if error:
            return f"raises {error}"
        return "exact" if META_NEEDS_DEVICE.fullmatch(op.name) else as_described(op, inputs[0])
    runs = runs_all(op, dtype, "cuda")
    if runs is None:
        return None
    if runs and dtype not in op.dtypes and runs_all(op, dtype, "cpu"):
        return None  # no verdict: the CPU's table, too, omits types that run
    return "runs, and no GPU has it" if runs else "exact"


def runs_all(op, dtype, device):
    """Whether the operator refuses no sample of the dtype; None: the samples cannot be made."""
    seed()
    try:
        return refusal(op, op.sample_inputs(device, dtype)) is None
    except TimedOut:
        raise
    except Exception:
        return None


def as_described(op, sample):
    """Whether the results have the dtypes, shapes and devices of torch's meta kernels, where it has them."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    given = (sample.input, sample.args, sample.kwargs)
    value, args, kwargs = tree_map(lambda x: mode.from_tensor(x) if isinstance(x, torch.Tensor) else x, given)
    try:
        with mode:
            described = op(value, *args, **kwargs)
    except Exception:  # no meta kernel, or shapes that depend on values
        return "exact"
    found = op(sample.input, *sample.args, **sample.kwargs)
    kinds = [[(t.dtype, tuple(t.shape), t.device.type) for t in tensors(part)] for part in (described, found)]
    return "exact" if kinds[0] == kinds[1] else f"gives {kinds[1]} instead of {kinds[0]}"


def refusal(op, inputs):
    """The text of the first exception that the operator raises for one of the inputs, or None."""
    for sample in inputs:
        try:
            op(sample.input, *sample.args, **sample.kwargs)
        except TimedOut:
            raise
        except Exception as error:
            return first_line(error)
    return None


def dtypes(ops, options):
    for op in on_cuda_in_torchs_suite(ops):
        table = op.dtypes if op.dtypesIfCUDA is None else op.dtypesIfCUDA
        asked = [dtype for dtype in DTYPES if dtype in table or dtype != torch.complex32]  # as torch's suite does
        verdicts = [timed(check_dtype, op, dtype, dtype in table) for dtype in asked]
        for dtype, verdict in zip(asked, verdicts, strict=True):
            known = must_fail(op, "test_dtypes") and verdict != "exact"  # the entry misreports its dtypes
            yield op, str(dtype).removeprefix("torch."), None if known else verdict


def check_error(op, given):
    sample = given.sample_input
    try:
        result = op(sample.input, *sample.args, **sample.kwargs)
    except TimedOut:
        raise
    except Exception as error:
        same = isinstance(error, given.error_type) and re.search(given.error_regex or "", str(error))
        return "exact" if same else f"{first_line(error)} instead of {given.error_regex[:60]}"
    if result is NotImplemented:  # of a binary method, which is Python's way to refuse an argument
        return "exact"
    return f"no error instead of {given.error_regex[:60]}"


def errors(ops, options):
    for op in on_cuda_in_torchs_suite(ops):
        if op.error_inputs_func is None:
            continue
        seed()
        try:
            given = list(op.error_inputs("cuda"))
        except Exception as error:
            yield op, "inputs", f"no inputs: {first_line(error)}"
            continue
        verdicts = [timed(check_error, op, inputs) for inputs in given]
        if must_fail(op, "test_errors"):
            failed = any(verdict != "exact" for verdict in verdicts)
            verdicts = ["exact" if failed else "raises as listed, where torch expects test_errors to fail"] * len(
                verdicts
            )
        for number, verdict in enumerate(verdicts):
            yield op, str(number), verdict


def check_device(op, arguments, number):
    """Call the operator with tensor `number` of the arguments on the CPU and all others on the device."""
    leaves, spec = tree_flatten(arguments)
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    moved = [leaf if i == places[number] else on_cuda(leaf) for i, leaf in enumerate(leaves)]
    left = leaves[places[number]]
    value, args, kwargs = tree_unflatten(moved, spec)
    try:
        op(value, *args, **kwargs)
    except TimedOut:
        raise
    except Exception as error:
        if "CUDA error" in str(error):  # a kernel has read the CPU's memory
            return first_line(error)
        named = re.search("device|cuda|Input type .* and (weight|bias) type", str(error), re.IGNORECASE)
        return "exact" if named else first_line(error)
    return "exact" if left.dim() == 0 else f"runs, {tuple(left.shape)} {left.dtype}"


def devices(ops, options):
    for op in ops:
        if torch.float32 not in op.dtypes:
            continue
        seed()
        for sample in itertools.islice(op.sample_inputs("cpu", torch.float32), options.samples):
            arguments = (sample.input, sample.args, sample.kwargs)
            count = len(tensors(arguments))
            for number in range(count if count > 1 else 0):
                yield op, str(number), timed(check_device, op, arguments, number)


MODES = {"values": values, "dtypes": dtypes, "errors": errors, "devices": devices}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("dtype", nargs="?", default="float32")
    parser.add_argument("--samples", type=int, default=6, help="of each operator")
    parser.add_argument("--every", type=int, default=1, help="only every N-th operator")
    parser.add_argument("--first", type=int, default=0, help="from which on")
    parser.add_argument("--only", nargs="+", help="only these operators")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    signal.signal(signal.SIGALRM, on_alarm)
    ops = [op for op in op_db if not options.only or op.name in options.only][options.first :: options.every]
    counts = collections.Counter()
    begin = time.monotonic()
    for op, detail, verdict in MODES[options.mode](ops, options):
        if verdict is None:
            continue
        counts[verdict if verdict in ("exact", "close") else "other"] += 1
        if verdict != "exact":
            name = f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name
            print(f"{name}\t{detail}\t{verdict}", flush=True)
    print(f"checked\t{len(ops)} operators\t{dict(counts)}", flush=True)
    print(f"{time.monotonic() - begin:.0f} s", file=sys.stderr)


main()
