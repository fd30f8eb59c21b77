"""The inventory: which GPUs clients see, and where a guest finds them on its PCI bus."""
