"""`vgpu smi`: NVML's answers in the formats of nvidia-smi, for people and for scripts."""
