"""The host side of vgpu: it identifies clients, tells them which GPUs there are, and gives each a worker."""

__version__ = "0.1.0"
