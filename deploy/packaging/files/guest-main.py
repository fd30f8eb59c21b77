"""`vgpu`: Python runs the folder that this file lies in."""

from vgpu_guest.cli import packaged

packaged()(prog_name="vgpu")
