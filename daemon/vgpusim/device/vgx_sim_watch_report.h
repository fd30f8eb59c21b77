/* A report is begun, gets its fields, and ends as a line of the log: see vgx_sim_watch_report.c. */
#ifndef VGX_SIM_WATCH_REPORT_H
#define VGX_SIM_WATCH_REPORT_H

#include "vgx_sim_watch.h"

struct vgx_sim_report {
  char text[1000];
  uint32_t used;
};
/* Whether another finding at an instruction is to be reported; if not, it is only counted. */
bool vgx_sim_report_admits(const struct vgx_sim_watch *watch, const void *site);
/* Report how many findings of each kernel were only counted. */
void vgx_sim_report_totals(void (*log)(const char *format, ...));
void vgx_sim_report_begin(struct vgx_sim_report *r, const char *kind, const struct vgx_sim_watch *watch);
void vgx_sim_report_text(struct vgx_sim_report *r, const char *name, const char *value);
void vgx_sim_report_number(struct vgx_sim_report *r, const char *name, uint64_t value);
void vgx_sim_report_stack(struct vgx_sim_report *r, const char *name, uint64_t number); /* 0: leaves it out */
void vgx_sim_report_place(struct vgx_sim_report *r, const struct vgx_sim_watch *watch,
                          const struct vgx_sim_thread *thread, uint32_t lane);
void vgx_sim_report_end(struct vgx_sim_report *r, void (*log)(const char *format, ...));

#endif
