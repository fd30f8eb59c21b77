/* The shim's log. It writes into other people's programs, between lines that other programs parse: unless VGPU_LOG asks
 * for more, or for silence, it reports only why the program cannot use the GPU any more. */
#ifndef VGS_LOG_H
#define VGS_LOG_H

#include "vgw_cuda.h"
#include <stdbool.h>
#include <stddef.h>
#include <time.h>

/* REASON, shown without VGPU_LOG: why the GPU's work ends or cannot begin. A few lines for each process. */
enum vgs_log_level { VGS_LOG_OFF, VGS_LOG_REASON, VGS_LOG_ERROR, VGS_LOG_INFO, VGS_LOG_TRACE };

/* How the current thread's call got its answer; vgs_session_call raises it, the trace prints it. */
enum vgs_way { VGS_WAY_LOCAL, VGS_WAY_QUEUED, VGS_WAY_WAITED };
extern _Thread_local enum vgs_way vgs_way;

/* Free what the log holds; later lines go to stderr. Only the library's destructor calls it. */
void vgs_log_fini(void);

/* -1 until VGPU_LOG has been read, then 0, 1, or 2 where look-ups of functions are traced, too (trace-all). */
extern int vgs_trace_state;

bool vgs_log_enabled(enum vgs_log_level level);

/* Write one line to stderr or VGPU_LOG_FILE. Keeps errno. */
void vgs_log(enum vgs_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* One line about what the host has been working on for seconds while a call waits: if stderr is a terminal, with
 * VGPU_PROGRESS=1, or with VGPU_LOG=info. A bounded number for each process, counted apart from REASON lines. Keeps
 * errno. */
void vgs_log_progress(const char *text);

/* Copy text with its control characters as \xNN, so that what a program or a host says stays one line. Cut to fit;
 * returns its length without the NUL. `capacity` at least 1. */
size_t vgs_log_escape(char *into, size_t capacity, const char *text);

static inline bool vgs_trace_on(void) {
  int state = __atomic_load_n(&vgs_trace_state, __ATOMIC_RELAXED);
  return state > 0 || (state < 0 && vgs_log_enabled(VGS_LOG_TRACE));
}

/* For look-ups of functions (cuGetProcAddress): a runtime makes hundreds of them at its start. */
static inline bool vgs_trace_lookups_on(void) {
  return vgs_trace_on() && __atomic_load_n(&vgs_trace_state, __ATOMIC_RELAXED) > 1;
}

/* One exported call being traced; lies on its stack, so that a call made inside a call does not disturb it. */
struct vgs_trace {
  const char *name;
  char arguments[512];
  uint64_t start_ns;
};

/* A call without parameters has an empty format. */
#pragma GCC diagnostic ignored "-Wformat-zero-length"

/* Called around an exported call while vgs_trace_on(). The line is written at its end: result, way and duration. */
void vgs_trace_begin(struct vgs_trace *trace, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void vgs_trace_end(const struct vgs_trace *trace, CUresult result);

/* Returns NOT_SUPPORTED; logs the name the first time. `named`: a flag that the caller keeps, initially false. */
CUresult vgs_unimplemented(const char *name, bool *named);

#endif
