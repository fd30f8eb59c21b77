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

_Thread_local enum vgs_way vgs_way;
int vgs_trace_state = -1;

static enum vgs_log_level log_level;
static const char
    *log_path; /* NULL: stderr. Opened for each line, so that no descriptor of ours stays in the program. */
static pthread_once_t log_once = PTHREAD_ONCE_INIT;

static void read_environment(void) {
  static const char *const names[] = {"off", "error", "info", "trace"};
  const char *wanted = getenv("VGPU_LOG");
  for (int i = 0; wanted && i < 4; i++)
    if (!strcmp(wanted, names[i]))
      log_level = (enum vgs_log_level)i;
  const char *path = getenv("VGPU_LOG_FILE");
  log_path = path && *path ? strdup(path) : NULL;
  __atomic_store_n(&vgs_trace_state, log_level == VGS_LOG_TRACE, __ATOMIC_RELAXED);
}

void vgs_log_fini(void) {
  free((void *)log_path);
  log_path = NULL;
}

bool vgs_log_enabled(enum vgs_log_level level) {
  pthread_once(&log_once, read_environment);
  return level <= log_level;
}

void vgs_log(enum vgs_log_level level, const char *format, ...) {
  if (!vgs_log_enabled(level))
    return;
  int saved = errno;
  char line[1024];
  int used = snprintf(line, sizeof line, "vgpu[%d]: ", (int)getpid());
  va_list arguments;
  va_start(arguments, format);
  int more = vsnprintf(line + used, sizeof line - (size_t)used - 1, format, arguments);
  va_end(arguments);
  size_t nbytes = (size_t)used + (more < 0 ? 0 : (size_t)more);
  if (nbytes > sizeof line - 2)
    nbytes = sizeof line - 2;
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

void vgs_trace_begin(struct vgs_trace *trace, const char *name, const char *format, ...) {
  va_list arguments;
  trace->name = name;
  va_start(arguments, format);
  vsnprintf(trace->arguments, sizeof trace->arguments, format, arguments);
  va_end(arguments);
  vgs_way = VGS_WAY_LOCAL;
  clock_gettime(CLOCK_MONOTONIC, &trace->start);
}

void vgs_trace_end(const struct vgs_trace *trace, CUresult result) {
  static const char *const ways[] = {"local", "queued", "waited"};
  struct timespec end;
  clock_gettime(CLOCK_MONOTONIC, &end);
  double microseconds =
      (double)(end.tv_sec - trace->start.tv_sec) * 1e6 + (double)(end.tv_nsec - trace->start.tv_nsec) / 1e3;
  vgs_log(VGS_LOG_TRACE, "%s(%s) = %d [%s, %.1f us]", trace->name, trace->arguments, result, ways[vgs_way],
          microseconds);
}

CUresult vgs_unimplemented(const char *name, bool *named) {
  if (!__atomic_exchange_n(named, true, __ATOMIC_RELAXED))
    vgs_log(VGS_LOG_ERROR, "%s is not implemented: CUDA_ERROR_NOT_SUPPORTED", name);
  return CUDA_ERROR_NOT_SUPPORTED;
}
