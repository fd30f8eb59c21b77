/* Round trip and bandwidth of a channel out of a VM, measured in the guest:
 *   vm_channel cuda          through libcuda.so.1: a waiting call, copies of pageable and pinned memory
 *   vm_channel bytes PATH    a character device with an echoing host at its other end, for comparison
 * Prints one line: p50 and p99 of the round trip in us, MiB/s to the host and from the host (for `cuda`, these two
 * follow once more for pinned memory). */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 500, REPEATS = 3, NBYTES = 32 << 20 };

static double now_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void check(int good, const char *what) {
  if (!good) {
    fprintf(stderr, "%s failed\n", what);
    exit(1);
  }
}

static int by_value(const void *a, const void *b) {
  double difference = *(const double *)a - *(const double *)b;
  return difference < 0 ? -1 : difference > 0;
}

static void print_round_trip(double *times_s) {
  qsort(times_s, ROUNDS, sizeof *times_s, by_value);
  printf("%.1f %.1f", times_s[ROUNDS / 2] * 1e6, times_s[ROUNDS * 99 / 100] * 1e6);
}

static void print_rate(double best_s) { printf(" %.0f", NBYTES / best_s / (1 << 20)); }

#define CALL(name, ...) check(((int (*)())dlsym(cuda, #name))(__VA_ARGS__) == 0, #name)

static void measure_cuda(void) {
  void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
  check(cuda != NULL, "dlopen libcuda.so.1");
  void *context, *pinned;
  uint64_t memory;
  uint32_t word;
  CALL(cuInit, 0);
  CALL(cuDevicePrimaryCtxRetain, &context, 0);
  CALL(cuCtxSetCurrent, context);
  CALL(cuMemAlloc_v2, &memory, (size_t)NBYTES);
  CALL(cuMemHostAlloc, &pinned, (size_t)NBYTES, 0);
  char *pageable = malloc(NBYTES);
  check(pageable != NULL, "malloc");
  memset(pageable, 1, NBYTES);
  memset(pinned, 1, NBYTES);
  double times_s[ROUNDS];
  for (int i = 0; i < ROUNDS; i++) {
    double start = now_s();
    CALL(cuMemcpyDtoH_v2, &word, memory, sizeof word);
    times_s[i] = now_s() - start;
  }
  print_round_trip(times_s);
  char *hosts[] = {pageable, pinned};
  for (int kind = 0; kind < 2; kind++) {
    double best_s[2] = {1e9, 1e9};
    for (int i = 0; i < REPEATS; i++) {
      double start = now_s();
      CALL(cuMemcpyHtoD_v2, memory, hosts[kind], (size_t)NBYTES);
      CALL(cuCtxSynchronize);
      double middle = now_s();
      CALL(cuMemcpyDtoH_v2, hosts[kind], memory, (size_t)NBYTES);
      double end = now_s();
      best_s[0] = middle - start < best_s[0] ? middle - start : best_s[0];
      best_s[1] = end - middle < best_s[1] ? end - middle : best_s[1];
    }
    print_rate(best_s[0]);
    print_rate(best_s[1]);
  }
}

static void transfer(int fd, char *bytes, size_t nbytes, int out) {
  while (nbytes) {
    size_t piece = nbytes < (64 << 10) ? nbytes : 64 << 10;
    ssize_t moved = out ? write(fd, bytes, piece) : read(fd, bytes, piece);
    check(moved > 0, out ? "write" : "read");
    bytes += moved;
    nbytes -= (size_t)moved;
  }
}

/* A request is two 64-bit words: `what` ('e'cho, 's'ink or 'g'ive) and `nbytes`. A sink is answered with 8 bytes. */
static void request(int fd, uint64_t what, uint64_t nbytes) {
  uint64_t words[2] = {what, nbytes};
  transfer(fd, (char *)words, sizeof words, 1);
}

static void measure_bytes(const char *path) {
  int fd = open(path, O_RDWR | O_CLOEXEC);
  check(fd >= 0, path);
  char *bytes = calloc(1, NBYTES);
  check(bytes != NULL, "calloc");
  double times_s[ROUNDS], best_s[2] = {1e9, 1e9};
  for (int i = 0; i < ROUNDS; i++) {
    double start = now_s();
    request(fd, 'e', 64);
    transfer(fd, bytes, 64, 1);
    transfer(fd, bytes, 64, 0);
    times_s[i] = now_s() - start;
  }
  print_round_trip(times_s);
  for (int i = 0; i < REPEATS; i++) {
    double start = now_s();
    request(fd, 's', NBYTES);
    transfer(fd, bytes, NBYTES, 1);
    transfer(fd, bytes, 8, 0);
    double middle = now_s();
    request(fd, 'g', NBYTES);
    transfer(fd, bytes, NBYTES, 0);
    double end = now_s();
    best_s[0] = middle - start < best_s[0] ? middle - start : best_s[0];
    best_s[1] = end - middle < best_s[1] ? end - middle : best_s[1];
  }
  print_rate(best_s[0]);
  print_rate(best_s[1]);
}

int main(int argc, char **argv) {
  if (argc == 2 && !strcmp(argv[1], "cuda"))
    measure_cuda();
  else if (argc == 3 && !strcmp(argv[1], "bytes"))
    measure_bytes(argv[2]);
  else
    return 2;
  printf("\n");
  return 0;
}
