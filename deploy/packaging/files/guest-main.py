"""`vgpu`: Python runs the folder that contains this file."""

from vgpu_guest.cli import packaged

packaged()(prog_name="vgpu")
