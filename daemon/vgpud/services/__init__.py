"""What workers ask vgpud for: images by digest, and memory and events shared within a tenant."""
