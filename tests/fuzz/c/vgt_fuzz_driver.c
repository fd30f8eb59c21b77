/* A driver of which one call fails (vgt_fuzz_faults.h): the simulator's table, with a function of the same type in
 * front of each of its own. tests/fuzz/in_process.py generates the list of them, vgt_driver.h. */
#include "vgt_fuzz_driver.h"

#include <stdlib.h>
#include <string.h>

#include "vgt_fuzz_faults.h"
#include "vgx_image.h"

static struct vgx_backend real, failing;

/* Stands for the simulator's linker, which is Python: what is linked is the first input. */
static CUresult link_images(CUdevice device, const void *const *data, const uint64_t *nbytes, uint32_t count,
                            void **out, uint64_t *out_nbytes) {
  (void)device, (void)count;
  if (!out)
    return CUDA_SUCCESS;
  *out = calloc(1, nbytes[0] + VGX_IMAGE_PADDING);
  if (!*out)
    return CUDA_ERROR_OUT_OF_MEMORY;
  memcpy(*out, data[0], nbytes[0]);
  *out_nbytes = nbytes[0];
  return CUDA_SUCCESS;
}

/* The simulator shares a device otherwise, and has not this. */
static CUresult current_device(CUdevice *device) {
  *device = 0;
  return CUDA_SUCCESS;
}

/* As NVIDIA's driver, of which the caller may want the status alone. */
static const struct vgx_backend *simulated;
static CUresult capture_info(CUstream stream, int *status, uint64_t *id, CUgraph *graph, const CUgraphNode **nodes,
                             size_t *count) {
  uint64_t id_unread;
  CUgraph graph_unread;
  const CUgraphNode *nodes_unread;
  size_t count_unread;
  return simulated->cuStreamGetCaptureInfo_v2(stream, status, id ? id : &id_unread, graph ? graph : &graph_unread,
                                              nodes ? nodes : &nodes_unread, count ? count : &count_unread);
}

void vgt_driver_words(bool has) { failing.has_words = has; }

#ifdef VGT_FAULTS
#define VGT_DRIVER(name, parameters, arguments)                                                                        \
  static CUresult fail_##name parameters {                                                                             \
    return vgt_faults_driver_fails() ? CUDA_ERROR_OUT_OF_MEMORY : real.name arguments;                                 \
  }
#include "vgt_driver.h"
#undef VGT_DRIVER
#endif

const struct vgx_backend *vgt_driver(const struct vgx_backend *simulator) {
  real = *simulator;
  real.link = link_images;
  real.current_device = current_device;
  simulated = simulator;
  real.cuStreamGetCaptureInfo_v2 = capture_info;
  failing = real;
#ifdef VGT_FAULTS
#define VGT_DRIVER(name, parameters, arguments)                                                                        \
  if (real.name)                                                                                                       \
    failing.name = fail_##name;
#include "vgt_driver.h"
#undef VGT_DRIVER
#endif
  return &failing;
}
