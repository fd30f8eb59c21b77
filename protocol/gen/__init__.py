"""The generator: `python -m protocol.gen` writes build/gen and daemon/vgpud/_gen."""
