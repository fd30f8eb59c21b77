"""Clients' images (fat binaries, ELF files, PTX text), from which the PTX for a device is selected."""
