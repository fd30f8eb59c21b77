/* One allocation by the loop of vgs_claiming.h, from a driver that reuses the next free address in one direction, while
 * this process has addresses mapped there. Arguments: the direction (up, down), where reservations lie (there, away,
 * refused, or as on an H200: at the next multiple of 64 MiB), whether memory can be made at a reservation (apart,
 * beside), MiB of memory, MiB of the allocation, MiB below and above the first address where the mapping begins and
 * ends, and any word for an allocation from a pool. Prints the result, the MiB that stay allocated, the number of
 * reservations that stay, the MiB that were allocated at most, how many attempts an allocation of 2 MiB after that
 * takes, and the result of one of all memory that is left then, had nothing stayed in the pool. */
#include "vgs_apart_place.c"
#include "vgs_claim.c"
#include "vgs_claiming.c"

#define MIB (1ull << 20)
#define START 0x300000000000ull
#define AWAY 0x380000000000ull

static struct range {
  uint64_t begin, end;
  bool memory, pooled; /* pooled: freed into the pool, which hands it out again */
} live[100];
static int count;
static uint64_t most;
static bool up;
static const char *reservations;
static uint64_t memory;
static bool makes_apart;

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
  live[count++] = (struct range){*at, *at + nbytes, of_memory, false};
  most = used(true) > most ? used(true) : most;
  return CUDA_SUCCESS;
}

static CUresult release(CUdeviceptr at, bool of_memory) {
  for (int i = 0; i < count; i++)
    if (live[i].begin == at && live[i].memory == of_memory)
      return live[i] = live[--count], CUDA_SUCCESS;
  abort();
}

/* As on an H200, large memory takes no addresses at which small memory would lie. */
CUresult vgs_send_cuMemAlloc_v2(CUdeviceptr *at, size_t nbytes) {
  for (int i = 0; i < count && nbytes > memory - used(true);) /* a pool's unused memory serves others */
    if (live[i].pooled)
      live[i] = live[--count];
    else
      i++;
  bool elsewhere = *reservations == 'h' && nbytes >= 64 * MIB;
  uint64_t from = !elsewhere ? START : up ? START + (4096 * MIB) : START - (4096 * MIB);
  return nbytes > memory - used(true) ? CUDA_ERROR_OUT_OF_MEMORY : make(at, from, nbytes, true);
}

CUresult vgs_send_cuMemGetInfo_v2(size_t *left, size_t *total) {
  return *left = memory - used(true), *total = memory, CUDA_SUCCESS;
}

CUresult vgs_send_cuMemAddressReserve(CUdeviceptr *at, size_t nbytes, size_t alignment, CUdeviceptr hint,
                                      unsigned long long flags) {
  if (*reservations == 'r' || alignment || flags)
    return CUDA_ERROR_NOT_PERMITTED;
  if (*reservations == 'h')
    hint = (hint + (64 * MIB - 1)) & ~(64 * MIB - 1);
  if (*reservations == 'a' || !hint || overlap(hint, hint + nbytes))
    return make(at, AWAY, nbytes, false);
  live[count++] = (struct range){ *at = hint, hint + nbytes, false, false};
  return CUDA_SUCCESS;
}

/* Memory at a reservation is counted by the granule, and nothing here frees it. */
CUresult vgs_apart_alloc(CUdeviceptr *address, CUdevice device, uint64_t nbytes, CUdeviceptr near) {
  (void)device;
  uint64_t granules = (nbytes + 2 * MIB - 1) & ~(2 * MIB - 1);
  if (!makes_apart)
    return CUDA_ERROR_NOT_PERMITTED;
  CUresult result =
      granules > memory - used(true) ? CUDA_ERROR_OUT_OF_MEMORY : vgs_apart_reserve(address, granules, 0, near);
  for (struct range *r = live; r < live + count && !result; r++)
    r->memory |= r->begin == *address;
  return result;
}
bool vgs_apart_is_open(void) { return false; }

CUresult vgs_send_cuMemFree_v2(CUdeviceptr at) { return release(at, true); }
CUresult vgs_send_cuMemAddressFree(CUdeviceptr at, size_t nbytes) { return release(at, nbytes == 0); }
uint16_t vgs_session_epoch(void) { return 1; }
void vgs_log(enum vgs_log_level level, const char *format, ...) { (void)level, (void)format; }
size_t vgs_log_escape(char *into, size_t capacity, const char *text) {
  return (size_t)snprintf(into, capacity, "%s", text);
}

static CUresult take(CUdeviceptr *at, uint64_t nbytes) {
  for (struct range *r = live; r < live + count; r++)
    if (r->pooled && r->end - r->begin == nbytes)
      return *at = r->begin, r->pooled = false, CUDA_SUCCESS;
  return vgs_send_cuMemAlloc_v2(at, nbytes);
}

static void give_back(CUdeviceptr at, bool to_pool) {
  for (struct range *r = live; r < live + count && to_pool; r++)
    r->pooled |= r->begin == at && r->memory;
  if (!to_pool)
    vgs_send_cuMemFree_v2(at);
}

/* Returns how many attempts were made. */
static int allocate(uint64_t nbytes, bool in_pool, CUresult *result, CUdeviceptr *told) {
  struct vgs_claiming claiming = {.is_memory = true, .is_ordered = in_pool, .in_pool = in_pool};
  int attempts = 0;
  bool again;
  do {
    if (!vgs_claim_apart(&claiming, told, result))
      *result = in_pool ? take(told, nbytes) : vgs_send_cuMemAlloc_v2(told, nbytes);
    again = vgs_claim_made(&claiming, result, *told, nbytes);
    for (CUdeviceptr taken; vgs_claim_rejected(&claiming, &taken);)
      give_back(taken, in_pool);
    attempts++;
  } while (again);
  return attempts;
}

int main(int argc, char **argv) {
  if (argc != 8 && argc != 9)
    return 2;
  bool in_pool = argc == 9;
  up = *argv[1] == 'u';
  reservations = argv[2];
  makes_apart = *argv[3] == 'a';
  memory = strtoull(argv[4], NULL, 10) * MIB;
  uint64_t nbytes = strtoull(argv[5], NULL, 10) * MIB;
  uint64_t begin = START - (uint64_t)strtoll(argv[6], NULL, 10) * MIB;
  uint64_t end = START + (uint64_t)strtoll(argv[7], NULL, 10) * MIB;
  if (map(begin, end - begin) == MAP_FAILED)
    return 3;
  CUresult result, later;
  CUdeviceptr told = 0, second;
  allocate(nbytes, in_pool, &result, &told);
  bool wrong = !result && told < end && told + nbytes > begin;
  printf("%d %llu %llu %llu", (int)result, (unsigned long long)(used(true) / MIB), (unsigned long long)used(false),
         (unsigned long long)(most / MIB));
  printf(" %d", allocate(2 * MIB, in_pool, &later, &second));
  allocate(memory - (result ? 0 : nbytes) - (later ? 0 : 2 * MIB), in_pool, &later, &second);
  printf(" %d%s\n", (int)later, wrong ? " over the mapping" : "");
  vgs_claim_fini();
  return 0;
}
