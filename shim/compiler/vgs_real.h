/* NVIDIA's compiler library behind this library: the one that the program would have used without vgpu. */
#ifndef VGS_REAL_H
#define VGS_REAL_H

/* A function of the real library, opened at the first call; NULL, and a line on stderr once, where there is none or it
 * has no such function. `caller` is an address in the calling object, whose search path is used. */
void *vgs_real_function(const char *name, const void *caller);

/* Path of the real library; valid after vgs_real_function has found a function. */
const char *vgs_real_path(void);

#endif
