/* vgt_fuzz SECONDS SEED STEPS CRASH-FILE [REPLAY-FILE | --fixed | --records=N] runs batches of sessions (SECONDS below
 * 0: that many batches), with N until they have executed N records. Each batch runs in a child process, so that death
 * by a signal is detected, and what sessions leave behind in a process is bounded. The children share the executed
 * edges and the inputs that found them. The last line printed counts sessions and records; the file that VGT_COUNTS
 * names has the same line after each batch.
 *
 * A batch that ends by a signal leaves its inputs in CRASH-FILE, which a replay runs in the same order in one process,
 * and in CRASH-FILE.txt what each of its threads was doing. */
#define _GNU_SOURCE
#include "vgt_fuzz.h"
#include "vgt_fuzz_desks.h"
#include "vgt_fuzz_evidence.h"
#include "vgt_fuzz_faults.h"
#include "vgt_fuzz_host.h"
#include "vgt_fuzz_stall.h"
#include "vgt_fuzz_walks.h"
#include "vgw_clock.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { EDGES = 1 << 16, KEPT_MAX = 1024, WALKING = 24, ONE_WALKS_IN = 9, DESCRIPTORS_MAX = 1024 };

static struct shared {
  uint8_t hit[EDGES];  /* edges executed by the current session */
  uint8_t seen[EDGES]; /* by any session */
  uint64_t sessions, records;
  uint32_t kept, edges;
  struct vgt_input current, inputs[KEPT_MAX];
  struct vgt_batch batch; /* of the current child */
  struct vgt_batch seeds; /* recorded sessions; none without VGT_SEEDS */
} *shared;

/* Called by the compiler's -fsanitize-coverage=trace-pc before each block, in any thread. */
__attribute__((no_sanitize_thread)) void __sanitizer_cov_trace_pc(void);
void __sanitizer_cov_trace_pc(void) {
  static _Thread_local uintptr_t before;
  uintptr_t at = (uintptr_t)__builtin_return_address(0);
  if (shared)
    shared->hit[((at >> 2) ^ before) % EDGES] = 1;
  before = at >> 3;
  if (vgt_stall_one_in)
    vgt_stall_maybe();
}

static uint32_t new_edges(void) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < EDGES; i++)
    if (shared->hit[i] && !shared->seen[i])
      shared->seen[i] = 1, count++;
  return count;
}

static void keep(struct vgt_random *random) {
  uint32_t place = shared->kept < KEPT_MAX ? shared->kept++ : vgt_below(random, KEPT_MAX);
  shared->inputs[place] = shared->current;
}

/* False: it is the last one of this process. */
static bool serve(struct vgt_random *random) {
  vgt_batch_add(&shared->batch, &shared->current);
  vgt_evidence_test(&shared->batch);
  memset(shared->hit, 0, EDGES);
  shared->records += vgt_session_run(&shared->current);
  shared->sessions++;
  uint32_t found = new_edges();
  shared->edges += found;
  if (found && !shared->current.walk)
    keep(random);
  return !vgt_session_is_last();
}

static bool one(struct vgt_random *random, uint32_t steps) {
  struct vgt_input *input = &shared->current;
  if (shared->seeds.count && vgt_addresses[0] && vgt_below(random, 16) == 0) {
    *input = shared->seeds.inputs[vgt_below(random, shared->seeds.count)];
    vgt_adopt(random, input);
    if (shared->kept && vgt_below(random, 4))
      vgt_mutate(random, input, &shared->inputs[vgt_below(random, shared->kept)]);
  } else if (shared->kept && vgt_below(random, 4)) {
    *input = shared->inputs[vgt_below(random, shared->kept)];
    vgt_mutate(random, input, &shared->inputs[vgt_below(random, shared->kept)]);
  } else {
    static const uint32_t wild[] = {0, 0, 0, 0, 1, 1, 2, VGT_WILD};
    vgt_make(random, input, steps, wild[vgt_below(random, sizeof wild / sizeof *wild)]);
  }
  return serve(random);
}

/* The walks of a process; each batch begins with another one, as one may be the process's last session. */
static bool walk(struct vgt_random *random, uint64_t seed) {
  bool goes_on = true;
  for (uint32_t i = 0; i < vgt_walk_count() && goes_on; i++) {
    uint32_t number = 1 + (uint32_t)((seed / VGT_PROCESSES + i) % vgt_walk_count());
    shared->current = (struct vgt_input){.walk = number};
    goes_on = !vgt_walk_fits(number, seed % VGT_PROCESSES) || serve(random);
  }
  return goes_on;
}

static double now_s(void) { return (double)vgw_now_ns() / 1e9; }

static int batch(uint64_t seed, uint32_t steps, double until, bool is_walking, const char *evidence) {
  shared->batch.seed = seed;
  shared->batch.count = 0;
  pid_t child = fork();
  if (child == 0) {
    struct vgt_random random = {seed * 0x9e3779b97f4a7c15ull | 1};
    vgt_evidence_init(evidence, &shared->batch);
    vgt_host_init(seed % VGT_PROCESSES);
    bool goes_on = !is_walking || walk(&random, seed);
    for (int i = 0; goes_on && i < VGT_BATCH && (!until || now_s() < until) && one(&random, steps);)
      i++;
    exit(0); /* not _exit: executed lines (--coverage) are written by exit */
  }
  int status;
  waitpid(child, &status, 0);
  if (status)
    fprintf(stderr, "process %d of the batch of seed %llu ended with status %#x in session %u\n", (int)child,
            (unsigned long long)seed, (unsigned)status, shared->batch.count);
  return status;
}

/* Whether a batch begins with walks. In a search for a time few do, of one kind of process after the other. */
static bool walks(double until, int number) { return until ? number % ONE_WALKS_IN == 0 : number < WALKING; }

static void print_counts(FILE *out) {
  fprintf(out, "sessions %llu records %llu edges %u kept %u\n", (unsigned long long)shared->sessions,
          (unsigned long long)shared->records, shared->edges, shared->kept);
}

static void save_counts(void) {
  const char *path = getenv("VGT_COUNTS");
  FILE *file = path ? fopen(path, "w") : NULL;
  if (path && !file)
    perror(path);
  if (!file)
    return;
  print_counts(file);
  fclose(file);
}

static int count_once(void) {
  int count = 0;
  for (int fd = 0; fd < DESCRIPTORS_MAX; fd++)
    count += vgt_descriptor_counts(fd);
  return count - vgt_desks_held();
}

/* The services' threads take and close descriptors meanwhile, so count until they do nothing. */
static int count_descriptors(void) {
  int count = count_once(), before;
  do {
    before = count;
    usleep(5000);
    count = count_once();
  } while (count != before);
  return count;
}

/* Run one session of the input that a seed makes; print how many descriptors it left open (if its threads have ended,
 * otherwise that it is late), and how often each function that can be made to fail was called. */
static int fixed(uint64_t seed, uint32_t steps) {
  struct vgt_random random = {seed * 0x9e3779b97f4a7c15ull | 1};
  const char *name;
  uint64_t count;
  vgt_host_init(seed % VGT_PROCESSES);
  vgt_make(&random, &shared->current, steps, 0);
  int before = count_descriptors();
  printf("records %llu", (unsigned long long)vgt_session_run(&shared->current));
  bool ended = vgt_session_let_go();
  printf(" late %d descriptors %d", !ended, ended ? count_descriptors() - before : 0);
  for (int i = 0; (count = vgt_faults_count(i, &name)) != UINT64_MAX; i++)
    printf(" %s %llu", name, (unsigned long long)count);
  printf("\n");
  return 0;
}

/* Run the sessions of a file in one process: VGT_PROCESS is what was decided for it. */
static int replay(const char *path, const char *evidence) {
  struct vgt_batch *batch = &shared->batch;
  if (!vgt_batch_load(batch, path)) {
    perror(path);
    return 1;
  }
  uint32_t end = batch->count, count = 0;
  uint64_t records = 0;
  vgt_evidence_init(evidence, batch);
  vgt_host_init(getenv("VGT_PROCESS") ? (unsigned)atoi(getenv("VGT_PROCESS")) : 0);
  do {
    batch->count = count + 1;
    records += vgt_session_run(&batch->inputs[count++]);
  } while (count < end && !vgt_session_is_last());
  printf("sessions %u records %llu\n", count, (unsigned long long)records);
  return 0;
}

int main(int argc, char **argv) {
  if (argc < 5)
    return fprintf(stderr, "vgt_fuzz SECONDS SEED STEPS CRASH-FILE [REPLAY-FILE | --fixed | --records=N]\n"), 2;
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (shared == MAP_FAILED)
    return perror("memory"), 1;
  const char *seeds = getenv("VGT_SEEDS");
  if (seeds && !vgt_batch_load(&shared->seeds, seeds))
    return perror(seeds), 1;
  char evidence[4096];
  snprintf(evidence, sizeof evidence, "%s.txt", argv[4]);
  vgt_faults_init();
  vgt_stall_init();
  if (argc > 5 && !strcmp(argv[5], "--fixed"))
    return fixed(strtoull(argv[2], NULL, 0), (uint32_t)atoi(argv[3]));
  static const char limit[] = "--records=";
  bool limited = argc > 5 && !strncmp(argv[5], limit, sizeof limit - 1);
  if (argc > 5 && !limited)
    return replay(argv[5], evidence);
  double seconds = atof(argv[1]), until = seconds < 0 ? 0 : now_s() + seconds;
  int batches = seconds < 0 ? (int)-seconds : 0;
  uint64_t seed = strtoull(argv[2], NULL, 0);
  uint32_t steps = (uint32_t)atoi(argv[3]);
  uint64_t records = limited ? strtoull(argv[5] + sizeof limit - 1, NULL, 0) : UINT64_MAX;
  int status = 0, count = 0;
  while (!status && shared->records < records && (until ? now_s() < until : batches-- > 0))
    status = batch(seed++, steps, until, walks(until, count++), evidence), save_counts();
  if (status) {
    if (!vgt_batch_save(&shared->batch, argv[4]))
      perror(argv[4]);
    fprintf(stderr, "its inputs, to be replayed with VGT_PROCESS=%u: %s\n", (unsigned)((seed - 1) % VGT_PROCESSES),
            argv[4]);
  }
  print_counts(stdout);
  return status != 0;
}
