/* Showing the notice once in a session. */
#ifndef VGS_NOTICE_SESSION_H
#define VGS_NOTICE_SESSION_H

#include <stdbool.h>
#include <time.h>

/* Whether no process of this session (getsid(2)) has shown the notice for the marker with this time; records that it is
 * shown now. True if that cannot be recorded. */
bool vgs_notice_session_first(const struct timespec *marked);

#endif
