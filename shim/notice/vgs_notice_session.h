/* Showing the notice once in a session. */
#ifndef VGS_NOTICE_SESSION_H
#define VGS_NOTICE_SESSION_H

#include <stdbool.h>
#include <time.h>

/* Whether nobody of this session (getsid(2)) has shown the notice of the marker with this time; remembers that now
 * somebody has. True where that cannot be remembered. */
bool vgs_notice_session_first(const struct timespec *marked);

#endif
