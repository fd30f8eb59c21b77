/* `vgt_digest PART...` prints the digest of standard input, added in parts of these sizes in turn. With `--time` it
 * digests 256 MiB and prints the bytes per second. */
#include "vgs_digest.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv) {
  static struct vgs_digest digest;
  uint8_t out[VGS_DIGEST_NBYTES];
  size_t capacity = 256u << 20, used = 0;
  uint8_t *data = malloc(capacity);
  if (!data || argc < 2)
    return 2;
  if (!strcmp(argv[1], "--time")) {
    memset(data, 7, capacity);
    double start_s = now_s();
    vgs_digest_init(&digest);
    vgs_digest_add(&digest, data, capacity);
    vgs_digest_finish(&digest, out);
    printf("%.0f\n", (double)capacity / (now_s() - start_s));
    free(data);
    return 0;
  }
  for (size_t got; used < capacity && (got = fread(data + used, 1, capacity - used, stdin)) > 0;)
    used += got;
  vgs_digest_init(&digest);
  int turn = 1;
  for (size_t done = 0; done < used; turn = turn + 1 < argc ? turn + 1 : 1) {
    size_t part = strtoull(argv[turn], NULL, 10);
    part = part && part < used - done ? part : used - done;
    vgs_digest_add(&digest, data + done, part);
    done += part;
  }
  vgs_digest_finish(&digest, out);
  for (size_t i = 0; i < sizeof out; i++)
    printf("%02x", out[i]);
  printf("\n");
  free(data);
  return 0;
}
