"""`vgpu smi`: what NVML says, in the forms people and scripts know."""
