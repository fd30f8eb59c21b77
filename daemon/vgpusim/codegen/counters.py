"""What `vgpu sim profile` counts of a launch, in the order of a line of its report (enum vgx_sim_count).

Commands read this where there is no LLVM, so it imports nothing that does."""

from __future__ import annotations

WARP_INSTRUCTIONS, THREAD_INSTRUCTIONS, BRANCHES, DIVERGENT_BRANCHES, BYTES = range(5)
SPACES = ("global", "shared", "local", "other")
KINDS = ("read", "write", "atomic")
COUNT = BYTES + len(SPACES) * len(KINDS)
