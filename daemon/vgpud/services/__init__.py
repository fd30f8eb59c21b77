"""Services of vgpud for workers: images by digest, and memory and events shared within a tenant."""
