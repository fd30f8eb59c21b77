/* Asynchronous notifications. The driver has one kind, that a process is over its budget of device memory; a vGPU has
 * no such budget (its limit refuses allocations instead), so registered functions are never called. */
#include "vgs_api.h"
#include "vgs_device.h"
#include <pthread.h>
#include <stdlib.h>

struct registration {
  CUdevice device;
  struct registration *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct registration *registrations;

CUresult vgs_cuDeviceRegisterAsyncNotification(CUdevice device, void *callbackFunc, void *userData, void **callback) {
  (void)userData;
  if (!vgs_device(device))
    return CUDA_ERROR_INVALID_DEVICE;
  if (!callbackFunc || !callback)
    return CUDA_ERROR_INVALID_VALUE;
  struct registration *made = malloc(sizeof *made);
  if (!made)
    return CUDA_ERROR_OUT_OF_MEMORY;
  pthread_mutex_lock(&lock);
  *made = (struct registration){device, registrations};
  registrations = made;
  pthread_mutex_unlock(&lock);
  *callback = made;
  return CUDA_SUCCESS;
}

CUresult vgs_cuDeviceUnregisterAsyncNotification(CUdevice device, void *callback) {
  pthread_mutex_lock(&lock);
  struct registration **link = &registrations;
  while (*link && (*link != callback || (*link)->device != device))
    link = &(*link)->next;
  struct registration *found = *link;
  if (found)
    *link = found->next;
  pthread_mutex_unlock(&lock);
  free(found);
  return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
