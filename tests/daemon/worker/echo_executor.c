/* An executor that echoes: the real interface (vgx_serve.h) without an implementation of calls. */
#include "vgx_control.c" /* as it is */

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "vgx_serve.h"

static int backend;
static uint32_t features;

const struct vgx_backend *vgx_cuda_backend(const char *path, const char **why) {
  if (strcmp(path, "/stand-in/libcuda.so.1") == 0 && write(2, "started\n", 8) == 8)
    return (const struct vgx_backend *)&backend;
  *why = "no such driver";
  return NULL;
}

/* Only device 0 has space for a context. */
const struct vgx_backend *vgx_warm_backend(const struct vgx_backend *cold, int32_t device) {
  return device == 0 ? cold : NULL;
}

struct vgw_ledger *vgx_ledger_map(int fd, uint32_t row) { return fd < 0 || row ? NULL : (struct vgw_ledger *)&backend; }

void vgx_progress(const char *line, bool ends) { (void)line, (void)ends; }

void vgx_meter_set(int fd) { close(fd); }

void vgx_meter_finish(void) {}

int vgx_restrict_threads(int ruleset_fd) { return ruleset_fd < 0; }

int vgx_serve(int fd, const struct vgx_serve_options *options) {
  char data[4096];
  if (options->backend != (const struct vgx_backend *)&backend)
    return VGX_ENDED_BY_RESOURCES;
  features = options->features;
  options->log(4, "first line\nsecond line");
  for (;;) {
    ssize_t nbytes = read(fd, data, sizeof data);
    if (nbytes <= 0)
      return VGX_ENDED_BY_CLIENT;
    if (memcmp(data, "violate", 7) == 0)
      return VGX_ENDED_BY_VIOLATION;
    if (write(fd, data, (size_t)nbytes) != nbytes)
      return VGX_ENDED_BY_CHANNEL;
  }
}

const char *vgx_reason_text(void) { return features & VGX_FEATURE_PINNED_FD ? "ended with pinned-fd" : "ended"; }

void vgx_stop(void) {}
