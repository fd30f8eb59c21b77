/* Reports as lines of JSON in the log: "sanitizer: {...}". `vgpu sanitize` turns them into readable reports. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "vgx_sim_watch_report.h"

#define REPORTS_MAX 20000u /* of a process; more are counted */
#define REPORTS_OF_KERNEL_MAX 500u
#define REPORTS_OF_SITE_MAX 64u
#define KERNELS 256u /* the last one stands for all that have no place of their own */
#define SITES 4096u
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

/* All under the caller's lock. Names outlive their modules. */
static struct {
  char *name;
  uint32_t reports, suppressed;
} kernels[KERNELS];
static struct {
  const void *site;
  uint32_t kernel, reports;
} sites[SITES]; /* by a hash; another kernel's site may have the address of one that is gone */
static uint32_t report_count;

static uint32_t number_of_kernel(const char *name) {
  for (uint32_t i = 0; i < KERNELS - 1; i++) {
    if (!kernels[i].name)
      kernels[i].name = strdup(name);
    if (!kernels[i].name)
      break;
    if (strcmp(kernels[i].name, name) == 0)
      return i;
  }
  return KERNELS - 1;
}

/* How often the instruction was reported; one without a place has the count of another. */
static uint32_t *reports_of_site(const void *site, uint32_t kernel) {
  uint32_t at = (uint32_t)(((uintptr_t)site / 8 + kernel) * 2654435761u >> 8) % SITES;
  for (uint32_t tries = 0; tries < 16; tries++, at = (at + 1) % SITES) {
    if (!sites[at].site) {
      sites[at].site = site;
      sites[at].kernel = kernel;
    }
    if (sites[at].site == site && sites[at].kernel == kernel)
      break;
  }
  return &sites[at].reports;
}

bool vgx_sim_report_admits(const struct vgx_sim_watch *watch, const void *site) {
  uint32_t kernel = number_of_kernel(watch->kernel ? watch->kernel : ""), *of_site = reports_of_site(site, kernel);
  if (report_count < REPORTS_MAX && kernels[kernel].reports < REPORTS_OF_KERNEL_MAX && *of_site < REPORTS_OF_SITE_MAX) {
    report_count++;
    kernels[kernel].reports++;
    ++*of_site;
    return true;
  }
  kernels[kernel].suppressed++;
  return false;
}

void vgx_sim_report_totals(void (*log)(const char *format, ...)) {
  struct vgx_sim_report r;
  for (uint32_t i = 0; i < KERNELS; i++) {
    if (!kernels[i].suppressed)
      continue;
    vgx_sim_report_begin(&r, "suppressed", NULL);
    if (kernels[i].name)
      vgx_sim_report_text(&r, "kernel", kernels[i].name);
    vgx_sim_report_number(&r, "count", kernels[i].suppressed);
    vgx_sim_report_end(&r, log);
  }
}

void vgx_sim_report_end(struct vgx_sim_report *r, void (*log)(const char *format, ...)) {
  r->text[r->used++] = '}';
  r->text[r->used] = 0;
  log("sanitizer: %s", r->text);
}
