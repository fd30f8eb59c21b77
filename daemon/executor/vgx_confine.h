/* Landlock for threads that exist already. */
#ifndef VGX_CONFINE_H
#define VGX_CONFINE_H

#include <stdbool.h>
#include <stdint.h>

/* Apply Landlock's ruleset to all threads of this process. 0 or an errno: ETIMEDOUT if a thread blocks signals. One
 * call at a time, while no session is served. */
int vgx_restrict_threads(int ruleset_fd);

#endif
