"""Exit codes of vgpud and vgpu; the table is the guest's, which has commands of its own."""

from vgpu_guest.exit_status import ExitStatus as ExitStatus
