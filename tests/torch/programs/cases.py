"""Programs of many cases: `PROGRAM [NAME ...]` runs only the cases named, `PROGRAM -NAME ...` all others.

Each case prints `ok NAME`, or `failed NAME` and the exception.
"""

import sys
import traceback
import warnings

import torch

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def message(kind, function, *arguments, **options):
    """The text of the exception of type `kind` that the call must raise."""
    try:
        function(*arguments, **options)
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__}")


def main():
    warnings.filterwarnings("ignore")
    failed = False
    left_out = [name.removeprefix("-") for name in sys.argv[1:] if name.startswith("-")]
    for name in [name for name in sys.argv[1:] if not name.startswith("-")] or CASES:
        if name in left_out:
            continue
        torch.manual_seed(0)
        try:
            CASES[name]()
            print("ok", name, flush=True)
        except Exception:
            failed = True
            print("failed", name, traceback.format_exc(), flush=True)
    sys.exit(failed)
