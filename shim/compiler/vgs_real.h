/* NVIDIA's compiler library behind ours: the one that the program would have used without vgpu. */
#ifndef VGS_REAL_H
#define VGS_REAL_H

/* A function of the real library, opened at the first call; NULL, and a line on stderr once, where there is none or it
 * has no such function. `caller` is an address in the object that calls: its search path counts. */
void *vgs_real_function(const char *name, const void *caller);

/* Path of the real library, which a function of it was found in. */
const char *vgs_real_path(void);

#endif
