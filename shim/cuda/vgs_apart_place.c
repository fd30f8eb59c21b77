#include "vgs_apart_place.h"
#include "vgs_api.h"
#include "vgs_claim.h"
#include "vgs_log.h"

#define GIB (1ull << 30)
#define ADDRESS_END (1ull << 47)

/* A driver reserves addresses where it is asked to if they are free in its process, at the next multiple of 64 MiB
 * (580.159.04, an H200), or elsewhere. So a few places are tried that are free in this process; whatever the driver
 * answers is accepted if it can be claimed. */
enum { STEPS = 256 };

/* Distance from the driver's last allocation, beside which it puts more. */
static const uint64_t DISTANCE_NBYTES = 16 * GIB;

/* Where the system puts no mappings, on x86-64 and aarch64, and neither do sanitizers and the client itself. */
static const uint64_t far_places[] = {0x180000000000, 0x600000000000, 0x380000000000};
enum { BELOW, ABOVE, NEXT, FAR, PLACES = FAR + sizeof far_places / sizeof *far_places };

/* The first place beside `near` that is free here; 0: none. */
static uint64_t find_beside(CUdeviceptr near, uint64_t nbytes, bool above) {
  uint64_t step = nbytes < GIB ? GIB : (nbytes + GIB - 1) & ~(GIB - 1), distance = DISTANCE_NBYTES + (above ? 0 : step);
  for (int i = 0; i < STEPS; i++, distance += step) {
    uint64_t at = (above ? near + distance + GIB : near - distance) & ~(GIB - 1);
    if (above ? at >= ADDRESS_END - step : near < distance + GIB)
      return 0;
    if (vgs_claim_is_free(at, nbytes))
      return at;
  }
  return 0;
}

static uint64_t find_place(int which, CUdeviceptr near, uint64_t nbytes) {
  if (which == BELOW || which == ABOVE)
    return find_beside(near, nbytes, which == ABOVE);
  if (which == NEXT) {
    uint64_t at = vgs_claim_find_free(nbytes + GIB);
    return at ? (at + GIB - 1) & ~(GIB - 1) : 0;
  }
  uint64_t at = far_places[which - FAR];
  return vgs_claim_is_free(at, nbytes) ? at : 0;
}

CUresult vgs_apart_reserve(CUdeviceptr *address, uint64_t nbytes, uint64_t alignment, CUdeviceptr near) {
  CUdeviceptr rejected[PLACES], got;
  int count = 0;
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  bool found = false;
  for (int which = 0; which < PLACES && !found; which++) {
    uint64_t hint = nbytes < ADDRESS_END / 2 ? find_place(which, near, nbytes) : 0;
    if (!hint)
      continue;
    result = vgs_send_cuMemAddressReserve(&got, nbytes, alignment, hint, 0);
    if (result == CUDA_ERROR_NOT_PERMITTED || result == CUDA_ERROR_NOT_SUPPORTED)
      break;
    if (result)
      continue;
    found = vgs_claim(got, nbytes);
    vgs_log(VGS_LOG_INFO, "%llu MiB of addresses, free here at %#llx, reserved at %#llx: %s",
            (unsigned long long)(nbytes >> 20), (unsigned long long)hint, (unsigned long long)got,
            found ? "free here" : "used here");
    if (found)
      *address = got;
    else
      rejected[count++] = got; /* held, so that it is not answered again */
  }
  while (count)
    vgs_send_cuMemAddressFree(rejected[--count], nbytes);
  return found ? CUDA_SUCCESS : result ? result : CUDA_ERROR_OUT_OF_MEMORY;
}
