/* The CUDA runtime, whose calls are seen only if it is vgpu's. */
#ifndef VGS_CUPTI_RUNTIME_H
#define VGS_CUPTI_RUNTIME_H

/* Called when observing the runtime's calls is enabled: warn once, on stderr, if the process has NVIDIA's runtime. */
void vgs_cupti_explain_runtime(void);

#endif
