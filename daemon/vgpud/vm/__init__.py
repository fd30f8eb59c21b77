"""The devices that vgpud provides to a virtual machine: its vsock device, the memory it shares with the host, its GPUs'
identity."""
