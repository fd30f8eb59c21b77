/* A driver of which one call fails (vgt_fuzz_faults.h): the simulator's table, with a function of the same type in
 * front of each of its own. tests/fuzz/in_process.py generates the list of them, vgt_driver.h. */
#include "vgt_fuzz_driver.h"

#include "vgt_fuzz_faults.h"

static struct vgx_backend real, failing;

#ifdef VGT_FAULTS
#define VGT_DRIVER(name, parameters, arguments)                                                                        \
  static CUresult fail_##name parameters {                                                                             \
    return vgt_faults_driver_fails() ? CUDA_ERROR_OUT_OF_MEMORY : real.name arguments;                                 \
  }
#include "vgt_driver.h"
#undef VGT_DRIVER
#endif

const struct vgx_backend *vgt_driver(const struct vgx_backend *simulator) {
  real = failing = *simulator;
#ifdef VGT_FAULTS
#define VGT_DRIVER(name, parameters, arguments)                                                                        \
  if (real.name)                                                                                                       \
    failing.name = fail_##name;
#include "vgt_driver.h"
#undef VGT_DRIVER
#endif
  return &failing;
}
