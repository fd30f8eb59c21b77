/* One kernel on several devices. Each launch is a cooperative one of its own; what orders them is events. */
#include "vgs_api.h"
#include "vgs_device.h"
#include "vgs_enter.h"
#include "vgs_objects.h"
#include <string.h>

enum { DEVICES_MAX = 64, FLAGS_ALL = 3 };

/* Run `part` of a launch in its stream's context. */
static CUresult in_context(const CUDA_LAUNCH_PARAMS *launch, CUresult (*part)(const CUDA_LAUNCH_PARAMS *, CUevent *),
                           CUevent *event) {
  const struct vgs_stream *stream = vgs_object_find(VGW_KIND_STREAM, launch->hStream);
  CUresult result = stream ? vgs_cuCtxPushCurrent_v2(stream->context) : CUDA_ERROR_INVALID_HANDLE;
  if (result)
    return result;
  result = vgs_enter_context();
  if (!result)
    result = part(launch, event);
  vgs_thread_pop();
  return result;
}

static CUresult start(const CUDA_LAUNCH_PARAMS *l, CUevent *event) {
  (void)event;
  return vgs_cuLaunchCooperativeKernel(l->function, l->gridDimX, l->gridDimY, l->gridDimZ, l->blockDimX, l->blockDimY,
                                       l->blockDimZ, l->sharedMemBytes, l->hStream, l->kernelParams);
}

static CUresult mark(const CUDA_LAUNCH_PARAMS *launch, CUevent *event) {
  enum { DISABLE_TIMING = 2 };
  CUresult result = vgs_cuEventCreate(event, DISABLE_TIMING);
  return result ? result : vgs_cuEventRecord(*event, launch->hStream);
}

static CUresult wait_for(const CUDA_LAUNCH_PARAMS *launch, CUevent *event) {
  return vgs_cuStreamWaitEvent(launch->hStream, *event, 0);
}

/* Make every stream wait for the work that is now in any of them. */
static CUresult meet(const CUDA_LAUNCH_PARAMS *list, unsigned count) {
  CUevent events[DEVICES_MAX] = {NULL};
  CUresult result = CUDA_SUCCESS;
  for (unsigned i = 0; i < count && !result; i++)
    result = in_context(&list[i], mark, &events[i]);
  for (unsigned i = 0; i < count && !result; i++)
    for (unsigned j = 0; j < count && !result; j++)
      if (i != j)
        result = in_context(&list[i], wait_for, &events[j]);
  for (unsigned i = 0; i < count; i++)
    if (events[i])
      vgs_cuEventDestroy_v2(events[i]);
  return result;
}

/* Check one launch before any of them begins: its stream is on a device that no earlier launch uses, and its shape is
 * that of the others. */
static CUresult check(const CUDA_LAUNCH_PARAMS *list, unsigned at) {
  const CUDA_LAUNCH_PARAMS *l = &list[at];
  if (memcmp(&l->gridDimX, &list->gridDimX, 7 * sizeof l->gridDimX))
    return CUDA_ERROR_INVALID_VALUE;
  const struct vgs_stream *stream = vgs_object_find(VGW_KIND_STREAM, l->hStream);
  if (!stream) /* an H200 refuses the default streams, too */
    return CUDA_ERROR_INVALID_HANDLE;
  for (unsigned i = 0; i < at; i++) {
    const struct vgs_stream *other = vgs_object_find(VGW_KIND_STREAM, list[i].hStream);
    if (other && other->device == stream->device)
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult vgs_cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *list, unsigned int numDevices,
                                                  unsigned int flags) {
  CUresult result = CUDA_SUCCESS;
  if (!list || !numDevices || flags & ~(unsigned)FLAGS_ALL || numDevices > DEVICES_MAX ||
      numDevices > (unsigned)vgs_device_count())
    return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < numDevices && !result; i++)
    result = check(list, i);
  if (!result && numDevices > 1 && !(flags & CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_PRE_LAUNCH_SYNC))
    result = meet(list, numDevices);
  for (unsigned i = 0; i < numDevices && !result; i++)
    result = in_context(&list[i], start, NULL);
  if (!result && numDevices > 1 && !(flags & CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_POST_LAUNCH_SYNC))
    result = meet(list, numDevices);
  return result;
}
