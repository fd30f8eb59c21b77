/* Reports as lines of JSON in the log: "sanitizer: {...}". `vgpu sanitize` turns them into readable reports. */
#include <stdio.h>
#include <string.h>

#include "vgx_sim_watch_report.h"

#define REPORTS_MAX 500u /* of a process; more are counted */
#define REPORTS_OF_SITE_MAX 64u
#define SITES 1024u
#define TEXT_NBYTES_MAX 300u /* of one field: mangled names are long, lines of the log are not */

static void put(struct vgx_sim_report *r, const char *text, size_t nbytes) {
  if (nbytes > sizeof r->text - 2 - r->used) /* room for the end */
    nbytes = sizeof r->text - 2 - r->used;
  memcpy(r->text + r->used, text, nbytes);
  r->used += (uint32_t)nbytes;
}

static void put_string(struct vgx_sim_report *r, const char *text) { put(r, text, strlen(text)); }

static void put_name(struct vgx_sim_report *r, const char *name) {
  put_string(r, r->text[r->used - 1] == '{' ? "\"" : ",\"");
  put_string(r, name);
  put_string(r, "\":");
}

void vgx_sim_report_begin(struct vgx_sim_report *r, const char *kind, const struct vgx_sim_watch *watch) {
  r->used = 0;
  put_string(r, "{");
  vgx_sim_report_text(r, "kind", kind);
  if (watch)
    vgx_sim_report_text(r, "kernel", watch->kernel);
  if (watch)
    vgx_sim_report_stack(r, "launched_by", watch->launched_by);
}

void vgx_sim_report_text(struct vgx_sim_report *r, const char *name, const char *value) {
  char escaped[TEXT_NBYTES_MAX];
  size_t n = 0;
  for (; value && *value && n < sizeof escaped - 3; value++) {
    if (*value == '"' || *value == '\\')
      escaped[n++] = '\\';
    escaped[n++] = (unsigned char)*value < 32 ? ' ' : *value;
  }
  put_name(r, name);
  put_string(r, "\"");
  put(r, escaped, n);
  put_string(r, "\"");
}

void vgx_sim_report_number(struct vgx_sim_report *r, const char *name, uint64_t value) {
  char text[24];
  put_name(r, name);
  put(r, text, (size_t)snprintf(text, sizeof text, "%llu", (unsigned long long)value));
}

void vgx_sim_report_stack(struct vgx_sim_report *r, const char *name, uint64_t number) {
  if (number)
    vgx_sim_report_number(r, name, number);
}

void vgx_sim_report_place(struct vgx_sim_report *r, const struct vgx_sim_watch *watch,
                          const struct vgx_sim_thread *thread, uint32_t lane) {
  const uint32_t *block = watch->launch->block;
  uint32_t number = thread->warp * 32 + lane;
  char text[128];
  put_name(r, "block");
  put(r, text, (size_t)snprintf(text, sizeof text, "[%u,%u,%u]", thread->cta[0], thread->cta[1], thread->cta[2]));
  put_name(r, "thread");
  put(r, text,
      (size_t)snprintf(text, sizeof text, "[%u,%u,%u]", number % block[0], number / block[0] % block[1],
                       number / block[0] / block[1]));
}

static uint32_t report_count, suppressed_count; /* under the caller's lock */
static uint32_t by_site[SITES];

bool vgx_sim_report_admits(const void *site) {
  uint32_t *of_site = &by_site[((uintptr_t)site / 16) % SITES];
  if (report_count < REPORTS_MAX && *of_site < REPORTS_OF_SITE_MAX) {
    report_count++;
    ++*of_site;
    return true;
  }
  suppressed_count++;
  return false;
}

uint32_t vgx_sim_report_suppressed(void) { return suppressed_count; }

void vgx_sim_report_end(struct vgx_sim_report *r, void (*log)(const char *format, ...)) {
  r->text[r->used++] = '}';
  r->text[r->used] = 0;
  log("sanitizer: %s", r->text);
}
