"""Run a JAX program under JAX's own profiler and print the Chrome trace. `profiled_jax.py FOLDER [OPTIONS]`: OPTIONS
are those of `advanced_configuration`, as JSON."""

import gzip
import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp


def main() -> None:
    function = jax.jit(lambda a: jnp.tanh(a * 2).sum(0))
    x = jnp.ones((64, 64), dtype=jnp.float32)
    function(x).block_until_ready()
    options = jax.profiler.ProfileOptions()
    if len(sys.argv) > 2:
        options.advanced_configuration = json.loads(sys.argv[2])
    with jax.profiler.trace(sys.argv[1], profiler_options=options):
        for _ in range(3):
            function(x).block_until_ready()
    (packed,) = Path(sys.argv[1]).rglob("*.trace.json.gz")
    print(gzip.decompress(packed.read_bytes()).decode())


if __name__ == "__main__":
    main()
