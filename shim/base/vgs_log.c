#define _GNU_SOURCE
#include "vgs_log.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "vgw_clock.h"

_Thread_local enum vgs_way vgs_way;
int vgs_trace_state = -1;

enum { REASONS_MAX = 6, PROGRESS_MAX = 16 };

static enum vgs_log_level log_level = VGS_LOG_REASON;
static int reasons; /* atomic; lines written without VGPU_LOG */
static const char
    *log_path; /* NULL: stderr. Opened for each line, so that the library keeps no descriptor open in the program. */
static pthread_once_t log_once = PTHREAD_ONCE_INIT;

static void read_environment(void) {
  static const char *const names[] = {"off", NULL, "error", "info", "trace"};
  const char *wanted = secure_getenv("VGPU_LOG");
  for (int i = 0; wanted && i <= VGS_LOG_TRACE; i++)
    if (names[i] && !strcmp(wanted, names[i]))
      log_level = (enum vgs_log_level)i;
  const char *path = secure_getenv("VGPU_LOG_FILE");
  log_path = path && *path ? strdup(path) : NULL;
  bool all = wanted && !strcmp(wanted, "trace-all");
  if (all)
    log_level = VGS_LOG_TRACE;
  __atomic_store_n(&vgs_trace_state, (log_level == VGS_LOG_TRACE) + all, __ATOMIC_RELAXED);
}

void vgs_log_fini(void) {
  free((void *)log_path);
  log_path = NULL;
}

bool vgs_log_enabled(enum vgs_log_level level) {
  pthread_once(&log_once, read_environment);
  return level <= log_level;
}

/* C0, DEL, and C1 in UTF-8: characters that start a line or control a terminal. */
static bool is_control(const unsigned char *at) {
  return *at < ' ' || *at == 0x7f || (*at == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0);
}

size_t vgs_log_escape(char *into, size_t capacity, const char *text) {
  size_t used = 0;
  for (const unsigned char *at = (const unsigned char *)text; *at; at++) {
    char escaped[5] = {(char)*at};
    if (is_control(at))
      snprintf(escaped, sizeof escaped, "\\x%02x", *at);
    size_t nbytes = strlen(escaped);
    if (used + nbytes >= capacity)
      break;
    memcpy(into + used, escaped, nbytes);
    used += nbytes;
  }
  into[used] = 0;
  return used;
}

static void write_line(const char *text) {
  int saved = errno;
  char line[2048];
  size_t nbytes = (size_t)snprintf(line, sizeof line, "vgpu[%d]: ", (int)getpid());
  nbytes += vgs_log_escape(line + nbytes, sizeof line - nbytes - 1, text);
  line[nbytes++] = '\n';
  int fd = log_path ? open(log_path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : STDERR_FILENO;
  if (fd >= 0) {
    ssize_t written = write(fd, line, nbytes); /* one write: lines of several threads do not mix */
    (void)written;
    if (log_path)
      close(fd);
  }
  errno = saved;
}

void vgs_log(enum vgs_log_level level, const char *format, ...) {
  if (!vgs_log_enabled(level))
    return;
  int before = log_level == VGS_LOG_REASON ? __atomic_fetch_add(&reasons, 1, __ATOMIC_RELAXED) : 0;
  if (before > REASONS_MAX)
    return;
  if (before == REASONS_MAX) /* the last one */
    format = "there is more to say: VGPU_LOG=error says all of it, VGPU_LOG=off nothing";
  int saved = errno;
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  write_line(text);
  errno = saved;
}

void vgs_log_progress(const char *text) {
  static int lines; /* atomic */
  int saved = errno;
  const char *wanted = secure_getenv("VGPU_PROGRESS");
  bool awaited = wanted && *wanted ? !strcmp(wanted, "1") : isatty(STDERR_FILENO);
  if (vgs_log_enabled(awaited ? VGS_LOG_REASON : VGS_LOG_INFO) &&
      __atomic_fetch_add(&lines, 1, __ATOMIC_RELAXED) < PROGRESS_MAX)
    write_line(text);
  errno = saved;
}

void vgs_trace_begin(struct vgs_trace *trace, const char *name, const char *format, ...) {
  va_list arguments;
  trace->name = name;
  va_start(arguments, format);
  vsnprintf(trace->arguments, sizeof trace->arguments, format, arguments);
  va_end(arguments);
  vgs_way = VGS_WAY_LOCAL;
  trace->start_ns = vgw_now_ns();
}

void vgs_trace_end(const struct vgs_trace *trace, CUresult result) {
  static const char *const ways[] = {"local", "queued", "waited"};
  double microseconds = (double)(vgw_now_ns() - trace->start_ns) / 1e3;
  vgs_log(VGS_LOG_TRACE, "%s(%s) = %d [%s, %.1f us]", trace->name, trace->arguments, result, ways[vgs_way],
          microseconds);
}

CUresult vgs_unimplemented(const char *name, bool *named) {
  if (!__atomic_exchange_n(named, true, __ATOMIC_RELAXED))
    vgs_log(VGS_LOG_REASON, "%s is not implemented: CUDA_ERROR_NOT_SUPPORTED", name);
  return CUDA_ERROR_NOT_SUPPORTED;
}
