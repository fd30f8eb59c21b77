/* Host call stacks for `vgpu sanitize`, which names a folder for them in VGPU_HOST_STACKS.
 *
 * Records of calls that allocate, free or launch carry the number of their stack (VGW_HOST_STACK) where a profiler has
 * theirs carry the call's. The simulator's reports repeat the number; the folder says what it means. */
#ifndef VGS_HOST_STACK_H
#define VGS_HOST_STACK_H

/* Start to observe calls, if VGPU_HOST_STACKS is set. A profiler that observes later takes over. */
void vgs_host_stack_begin(void);

#endif
