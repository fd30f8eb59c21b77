"""What clients load: fat binaries, ELF files and PTX text, down to the PTX that a device can run."""
