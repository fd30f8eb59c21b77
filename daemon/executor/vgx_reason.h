/* Why a call fails, in words that the client shows. */
#ifndef VGX_REASON_H
#define VGX_REASON_H

#include "vgw_cuda.h"
#include <stdbool.h>

struct vgx_session;

/* Tell the client and the log why a call fails; vgx_reason_add does not log. Cut to VGX_REASON_NBYTES. */
enum { VGX_REASON_NBYTES = 1000 };
void vgx_reason(struct vgx_session *s, CUresult result, const char *format, ...) __attribute__((format(printf, 3, 4)));
void vgx_reason_add(CUresult result, bool ends, const char *text);
bool vgx_reason_pending(void);
void vgx_reasons_clear(void);

/* Report that the backend lacks a function; returns NOT_SUPPORTED. */
CUresult vgx_not_offered(struct vgx_session *s, const char *name);

#endif
