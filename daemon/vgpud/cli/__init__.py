"""The `vgpud` and `vgpu` commands: one file a command."""
