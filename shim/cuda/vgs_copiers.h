/* Threads that help with one large copy at a time. */
#ifndef VGS_COPIERS_H
#define VGS_COPIERS_H

#include <stdbool.h>

/* Have the helpers run `work(copy)`, each once, at the same time as the caller. False: they are busy, or there are
 * none; the caller goes on alone. */
bool vgs_copiers_start(void (*work)(void *), void *copy);

/* After a successful start: wait until no helper runs `work` any more. */
void vgs_copiers_wait(void);

/* End the threads. */
void vgs_copiers_fini(void);

#endif
