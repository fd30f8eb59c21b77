#ifndef VGS_CALLBACK_H
#define VGS_CALLBACK_H

#include <stdbool.h>

/* Whether some host function was enqueued and has not returned yet: the program's memory may change in stream order. */
bool vgs_callback_pending(void);

/* Join the service thread, if there is one, and forget callbacks that never came due. The connection is shut down
 * already, so the thread does not wait for it; a callback of the program's that is running is waited for, one second at
 * most. */
void vgs_callback_fini(void);

#endif
