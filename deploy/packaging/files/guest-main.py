"""`vgpu`: Python runs the folder that this file lies in."""

from vgpu_guest.cli import vgpu

vgpu(prog_name="vgpu")
