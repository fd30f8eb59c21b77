"""What vgpud is to a virtual machine: its vsock device, the memory it shares with the host, its GPUs' identity."""
