/* Records that answer no call (wire.md, "Progress"). */
#ifndef VGW_PROGRESS_H
#define VGW_PROGRESS_H

enum { VGW_LAST_LINE = 1 }; /* flag: the text says why the session ends */

#endif
