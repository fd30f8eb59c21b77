/* Which findings the sanitizer reports: see vgx_sim_watch_report.c. */
#include "vgx_sim_watch_report.h"

/* Findings of one kernel at many instructions, then one of another. Returns how many of the first are reported, and
 * 10,000 if the second is. */
uint32_t vgt_reports_of_two_kernels(void) {
  struct vgx_sim_watch watches[2] = {{.kernel = "one"}, {.kernel = "another"}};
  static const struct vgx_sim_site sites[100];
  uint32_t count = 0;
  for (uint32_t i = 0; i < 10000; i++)
    count += vgx_sim_report_admits(&watches[0], &sites[i % 100]);
  return count + 10000 * vgx_sim_report_admits(&watches[1], &sites[0]);
}
