/* Racecheck on its own: launches that overlap in other orders than a test of whole programs can bring about. */
#include <sys/mman.h>

#include "vgx_sim_race.h"

#define ADDRESS (VGX_SIM_REACH_BEGIN + 4096)
#define PAGE_NBYTES 4096u

static void begin(struct vgx_sim_launch *launch, struct vgx_sim_watch *watch, struct vgx_sim_races **races,
                  uint64_t id) {
  *launch = (struct vgx_sim_launch){.grid = {1, 1, 1}, .block = {32, 1, 1}, .launch_id = id};
  *watch = (struct vgx_sim_watch){.tools = VGX_SIM_RACECHECK, .launch = launch};
  *races = vgx_sim_races_create();
  vgx_sim_races_begin(*races, launch, 0, true);
  vgx_sim_races_enter(*races, launch);
}

/* While one launch runs, another one stores a row and ends, and its module is unloaded; then the first one stores a
 * part of that row. Returns how many races are found. */
uint32_t vgt_race_of_unloaded(void) {
  struct vgx_sim_launch launches[2];
  struct vgx_sim_watch watches[2];
  struct vgx_sim_races *races[2];
  struct vgx_sim_thread thread = {.warp = 0};
  struct vgx_sim_row rows[] = {{0, 128, 0, NULL}, {0, 4, 0, NULL}};
  struct vgx_sim_site part = {
      .text = "", .place = "", .nbytes = 4, .kind = VGX_SIM_WRITE, .row_count = 1, .rows = &rows[1]};
  struct vgx_sim_site *row = mmap(NULL, PAGE_NBYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  *row = part;
  row->rows = &rows[0];
  for (uint32_t i = 0; i < 2; i++)
    begin(&launches[i], &watches[i], &races[i], UINT32_MAX - i);
  vgx_sim_races_rows(&watches[1], races[1], &thread, row, ADDRESS, NULL);
  vgx_sim_races_destroy(races[1]);
  munmap(row, PAGE_NBYTES);
  vgx_sim_races_rows(&watches[0], races[0], &thread, &part, ADDRESS, NULL);
  vgx_sim_races_destroy(races[0]);
  return watches[0].error_count + watches[1].error_count;
}
