/* One allocation by the loop of vgs_claim.h, from a driver that reuses the next free address in one direction, while
 * this process has addresses mapped there. Arguments: the direction (up, down), where reservations lie (there, away,
 * refused), MiB of memory, MiB of the allocation, and MiB below and above the first address where the mapping begins
 * and ends. Prints the result, the MiB that stay allocated and the number of reservations that stay. */
#include "vgs_claim.c"

#define MIB (1ull << 20)
#define START 0x300000000000ull
#define AWAY 0x380000000000ull

static struct range {
  uint64_t begin, end;
  bool memory;
} live[100];
static int count;
static bool up;
static const char *reservations;
static uint64_t memory;

static const struct range *overlap(uint64_t begin, uint64_t end) {
  for (const struct range *r = live; r < live + count; r++)
    if (r->begin < end && r->end > begin)
      return r;
  return NULL;
}

static uint64_t used(bool of_memory) {
  uint64_t sum = 0;
  for (int i = 0; i < count; i++)
    sum += live[i].memory != of_memory ? 0 : of_memory ? live[i].end - live[i].begin : 1;
  return sum;
}

static CUresult make(CUdeviceptr *at, uint64_t from, uint64_t nbytes, bool of_memory) {
  const struct range *hit;
  *at = up ? from : from - nbytes;
  while ((hit = overlap(*at, *at + nbytes)))
    *at = up ? hit->end : hit->begin - nbytes;
  live[count++] = (struct range){*at, *at + nbytes, of_memory};
  return CUDA_SUCCESS;
}

static CUresult release(CUdeviceptr at, bool of_memory) {
  for (int i = 0; i < count; i++)
    if (live[i].begin == at && live[i].memory == of_memory)
      return live[i] = live[--count], CUDA_SUCCESS;
  abort();
}

CUresult vgs_send_cuMemAlloc_v2(CUdeviceptr *at, size_t nbytes) {
  return nbytes > memory - used(true) ? CUDA_ERROR_OUT_OF_MEMORY : make(at, START, nbytes, true);
}

CUresult vgs_send_cuMemAddressReserve(CUdeviceptr *at, size_t nbytes, size_t alignment, CUdeviceptr hint,
                                      unsigned long long flags) {
  if (*reservations == 'r' || alignment || flags)
    return CUDA_ERROR_NOT_PERMITTED;
  if (*reservations == 'a' || !hint || overlap(hint, hint + nbytes))
    return make(at, AWAY, nbytes, false);
  live[count++] = (struct range){ *at = hint, hint + nbytes, false};
  return CUDA_SUCCESS;
}

CUresult vgs_send_cuMemFree_v2(CUdeviceptr at) { return release(at, true); }
CUresult vgs_send_cuMemAddressFree(CUdeviceptr at, size_t nbytes) { return release(at, nbytes == 0); }
void vgs_log(enum vgs_log_level level, const char *format, ...) { (void)level, (void)format; }
size_t vgs_log_escape(char *into, size_t capacity, const char *text) {
  return (size_t)snprintf(into, capacity, "%s", text);
}

int main(int argc, char **argv) {
  if (argc != 7)
    return 2;
  up = *argv[1] == 'u';
  reservations = argv[2];
  memory = strtoull(argv[3], NULL, 10) * MIB;
  uint64_t nbytes = strtoull(argv[4], NULL, 10) * MIB;
  uint64_t begin = START - (uint64_t)strtoll(argv[5], NULL, 10) * MIB;
  uint64_t end = START + (uint64_t)strtoll(argv[6], NULL, 10) * MIB;
  if (map(begin, end - begin) == MAP_FAILED)
    return 3;
  CUresult result;
  CUdeviceptr told = 0;
  struct vgs_claiming claiming = {.count = 0};
  bool again;
  do {
    result = vgs_send_cuMemAlloc_v2(&told, nbytes);
    again = vgs_claim_made(&claiming, &result, told, nbytes);
    for (CUdeviceptr taken; vgs_claim_rejected(&claiming, &taken);)
      (void)vgs_send_cuMemFree_v2(taken);
  } while (again);
  bool wrong = !result && told < end && told + nbytes > begin;
  printf("%d %llu %llu%s\n", (int)result, (unsigned long long)(used(true) / MIB), (unsigned long long)used(false),
         wrong ? " over the mapping" : "");
  vgs_claim_fini();
  return 0;
}
