"""What the programs of this folder share: a line for each check, and the exit code."""

import sys
import time

_failed = []
_begin = time.monotonic()


def check(name, compute, expected, tolerance=1e-4):
    """Compare a device's array with the CPU's; print name, verdict, largest error and seconds."""
    import numpy as np

    begin = time.monotonic()
    try:
        found, expected = np.asarray(compute()), np.asarray(expected)
    except Exception as error:  # the other checks still run
        _failed.append(name)
        print(f"WRONG {name}: {type(error).__name__}: {str(error)[:300]}", flush=True)
        return
    error = float(np.abs(found - expected).max()) if found.size else 0.0
    ok = found.shape == expected.shape and error <= tolerance  # false for NaN
    if not ok:
        _failed.append(name)
    print(f"{'ok' if ok else 'WRONG'} {name} error {error:.2g} {time.monotonic() - begin:.1f} s", flush=True)


def finish(program):
    """Print the last line, which the test looks for, or exit with the names of the failed checks."""
    if _failed:
        sys.exit(f"{program}: wrong: {', '.join(_failed)}")
    print(f"ok {program} in {time.monotonic() - _begin:.0f} s")
