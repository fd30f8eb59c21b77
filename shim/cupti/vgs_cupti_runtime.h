/* The CUDA runtime, whose calls are seen only if it is vgpu's. */
#ifndef VGS_CUPTI_RUNTIME_H
#define VGS_CUPTI_RUNTIME_H

/* Calls of the runtime are asked for: say once, on stderr, if the process has loaded NVIDIA's. */
void vgs_cupti_explain_runtime(void);

#endif
