/* Functions that the program imports and this runtime lacks. */
#ifndef VGS_RT_MISSING_H
#define VGS_RT_MISSING_H

#include <stddef.h>

/* Generated: the exported functions without a body, sorted, and the library's own name. */
extern const char *const vgs_rt_missing[] __attribute__((visibility("hidden")));
extern const size_t vgs_rt_missing_count __attribute__((visibility("hidden")));
extern const char vgs_rt_soname[] __attribute__((visibility("hidden")));

/* Name, in one line, the functions without a body that the objects loaded by now import from this library. Once, when
 * the runtime is initialised. */
void vgs_rt_missing_tell(void);

#endif
