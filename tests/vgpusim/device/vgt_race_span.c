/* Racecheck's spans, compared with what is found without them: random loads and stores of rows and stripes. */
#include <stdlib.h>

#include "vgx_sim_race.h"
#include "vgx_sim_race_global.h"

#define ADDRESS (VGX_SIM_REACH_BEGIN + (1ull << 20))
#define CTAS 3u
#define WARPS 4u
#define SITES 16u
#define STEPS 400u

struct made {
  struct vgx_sim_site site;
  struct vgx_sim_row rows[32];
};

static void discard(const char *format, ...) { (void)format; }

static uint32_t next_random(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*state >> 33);
}

/* A site whose lanes are `distance` bytes apart. */
static void make(struct made *m, uint32_t nbytes, int32_t distance, bool stores) {
  bool row = distance == (int32_t)nbytes;
  *m =
      (struct made){.site = {.text = "", .place = "", .nbytes = nbytes, .kind = stores ? VGX_SIM_WRITE : VGX_SIM_READ}};
  m->site.row_count = row ? 1 : 32;
  m->site.rows = m->rows;
  m->site.distinct = true;
  m->site.pattern = row ? (uint8_t)(5 + (nbytes > 1) + (nbytes > 2)) : VGX_SIM_PATTERN_STRIPES;
  m->site.low = distance < 0 ? 31 * distance : 0;
  m->site.high = distance < 0 ? 0 : 31 * distance;
  for (uint32_t lane = 0; lane < m->site.row_count; lane++)
    m->rows[lane] = (struct vgx_sim_row){(int32_t)lane * distance, row ? 32 * nbytes : nbytes, lane, NULL};
}

static void make_all(struct made *sites) {
  static const struct {
    uint32_t nbytes;
    int32_t distance;
  } shapes[SITES / 2] = {{1, 1}, {1, 4}, {2, 2}, {4, 4}, {4, 12}, {4, -4}, {2, 8}, {1, 1}};
  for (uint32_t i = 0; i < SITES; i++)
    make(&sites[i], shapes[i / 2].nbytes, shapes[i / 2].distance, i % 2);
}

/* The races of one random launch. `loads`: how many of 8 accesses; `jumps`: how many of 8 are not where the warp's
 * number says. */
static uint32_t races_of(struct made *sites, uint64_t seed, bool with_spans, uint32_t id) {
  uint64_t state = seed;
  uint32_t loads = next_random(&state) % 8, jumps = next_random(&state) % 4, shape = next_random(&state) % 9;
  struct vgx_sim_launch launch = {.grid = {CTAS, 1, 1}, .block = {32 * WARPS, 1, 1}, .launch_id = id};
  struct vgx_sim_watch watch = {.tools = VGX_SIM_RACECHECK, .launch = &launch, .log = discard, .kernel = ""};
  struct vgx_sim_races *races = vgx_sim_races_create();
  for (uint32_t step = 0; step < STEPS; step++) {
    uint32_t cta = step / (STEPS / CTAS + 1);
    if (step == 0 || cta != (step - 1) / (STEPS / CTAS + 1)) {
      vgx_sim_races_begin(races, &launch, cta, true);
      vgx_sim_races_enter(races, &launch);
    }
    struct vgx_sim_thread thread = {.cta = {cta}, .warp = step / 3 % WARPS};
    uint32_t chosen = 2 * (shape < 8 ? shape : next_random(&state) % 8) + (next_random(&state) % 8 >= loads);
    const struct vgx_sim_site *site = &sites[chosen].site;
    bool row = site->row_count == 1;
    uint64_t width = row ? 32ull * site->nbytes : (uint64_t)abs(site->high + site->low) / 31 * 32;
    uint64_t place =
        next_random(&state) % 8 < jumps ? next_random(&state) % (2 * CTAS * WARPS) : cta * WARPS + thread.warp;
    uint64_t base = ADDRESS + 4096 + place * width - (site->low ? (uint64_t)(int64_t)site->low : 0);
    if (next_random(&state) % 64 == 0)
      base += 4; /* no row of a span */
    if (!with_spans || !vgx_sim_race_rows_in_global(races, thread.warp, site, base))
      vgx_sim_races_rows(&watch, races, &thread, site, base, NULL);
  }
  vgx_sim_races_destroy(races);
  return watch.error_count;
}

/* Returns how many launches differ; *all: the races of all. */
uint32_t vgt_race_compare_spans(uint32_t launches, uint32_t *all) {
  static struct made sites[SITES];
  uint32_t differing = 0;
  make_all(sites);
  for (uint32_t i = 0; i < launches; i++) {
    uint32_t with = races_of(sites, i + 1, true, 2 * i + 1), without = races_of(sites, i + 1, false, 2 * i + 2);
    differing += with != without;
    *all += with;
  }
  return differing;
}

/* Launches that overlap, of one warp each, so that there are no races. Returns how many are found. */
uint32_t vgt_race_of_overlapping_launches(uint32_t rounds) {
  static struct made sites[SITES];
  enum { LAUNCHES = 3 };
  uint64_t state = 1, found = 0;
  make_all(sites);
  for (uint32_t round = 0; round < rounds; round++) {
    struct vgx_sim_launch launches[LAUNCHES];
    struct vgx_sim_races *races[LAUNCHES];
    struct vgx_sim_watch watch = {.tools = VGX_SIM_RACECHECK, .log = discard, .kernel = ""};
    for (uint32_t i = 0; i < LAUNCHES; i++) {
      launches[i] = (struct vgx_sim_launch){
          .grid = {1, 1, 1}, .block = {32 * WARPS, 1, 1}, .launch_id = 1000000 + LAUNCHES * round + i};
      races[i] = vgx_sim_races_create();
    }
    for (uint32_t step = 0; step < 40; step++) {
      uint32_t running = step < 10 ? 1 : step < 20 ? 2 : LAUNCHES, i = next_random(&state) % running;
      if (step % 10 == 0 && step / 10 < LAUNCHES) {
        i = step / 10;
        vgx_sim_races_begin(races[i], &launches[i], 0, true);
        vgx_sim_races_enter(races[i], &launches[i]);
      }
      watch.launch = &launches[i];
      struct vgx_sim_thread thread = {.warp = i};
      const struct vgx_sim_site *site = &sites[next_random(&state) % SITES].site;
      uint64_t base = ADDRESS + 8192 + 32ull * (next_random(&state) % 32);
      if (!vgx_sim_race_rows_in_global(races[i], thread.warp, site, base))
        vgx_sim_races_rows(&watch, races[i], &thread, site, base, NULL);
    }
    for (uint32_t i = 0; i < LAUNCHES; i++)
      vgx_sim_races_destroy(races[i]);
    found += watch.error_count;
  }
  return (uint32_t)found;
}
