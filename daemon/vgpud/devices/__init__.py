"""The GPUs that clients are told about, and where a guest finds them on its PCI bus."""
