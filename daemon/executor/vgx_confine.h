/* Landlock for threads that exist already. */
#ifndef VGX_CONFINE_H
#define VGX_CONFINE_H

#include <stdbool.h>
#include <stdint.h>

/* Have Landlock's ruleset hold for all of this process's threads; 0 or an errno: ETIMEDOUT if one blocks signals. Once
 * at a time, while no session is served. */
int vgx_restrict_threads(int ruleset_fd);

#endif
