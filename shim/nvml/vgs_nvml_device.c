/* Finding devices, and what the client knows of them without asking. */
#include "vgs_nvml_device.h"
#include "vgs_inventory.h"
#include "vgs_nvml.h"
#include "vgs_nvml_init.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

nvmlReturn_t vgs_nvmlDeviceGetCount_v2(unsigned int *count) {
  if (!count)
    return NVML_ERROR_INVALID_ARGUMENT;
  *count = vgs_nvml_device_count();
  return NVML_SUCCESS;
}

/* All devices, in the host's order: CUDA_VISIBLE_DEVICES is libcuda's business. */
nvmlReturn_t vgs_nvmlDeviceGetHandleByIndex_v2(unsigned int index, void *handle) {
  if (!handle || index >= vgs_nvml_device_count())
    return NVML_ERROR_INVALID_ARGUMENT;
  *(nvmlDevice_t *)handle = vgs_nvml_handle(index);
  return NVML_SUCCESS;
}

nvmlReturn_t vgs_nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index) {
  int found = vgs_nvml_index(device);
  if (found < 0 || !index)
    return NVML_ERROR_INVALID_ARGUMENT;
  *index = (unsigned)found;
  return NVML_SUCCESS;
}

const char *vgs_nvml_pci(uint32_t index) { return vgs_nvml_device(index)->pci; }

struct address {
  unsigned domain, bus, device, function;
};

/* [domain:]bus:device[.function], hexadecimal, with as many digits as people write. */
static bool parse_address(const char *text, struct address *address) {
  int end = -1;
  memset(address, 0, sizeof *address);
  if (sscanf(text, "%8x:%2x:%2x%n", &address->domain, &address->bus, &address->device, &end) != 3) {
    address->domain = 0;
    if (sscanf(text, "%2x:%2x%n", &address->bus, &address->device, &end) != 2)
      return false;
  }
  if (text[end] == '.') {
    int more = -1;
    if (sscanf(text + end, ".%1x%n", &address->function, &more) != 1)
      return false;
    end += more;
  }
  return !text[end];
}

nvmlReturn_t vgs_nvmlDeviceGetHandleByPciBusId_v2(const char *text, void *handle) {
  struct address wanted, present;
  if (!text || !handle || !parse_address(text, &wanted))
    return NVML_ERROR_INVALID_ARGUMENT;
  for (uint32_t i = 0; i < vgs_nvml_device_count(); i++)
    if (parse_address(vgs_nvml_pci(i), &present) && !memcmp(&wanted, &present, sizeof wanted)) {
      *(nvmlDevice_t *)handle = vgs_nvml_handle(i);
      return NVML_SUCCESS;
    }
  return NVML_ERROR_NOT_FOUND;
}

static nvmlReturn_t find_uuid(const uint8_t uuid[16], void *handle) {
  for (uint32_t i = 0; i < vgs_nvml_device_count(); i++)
    if (!memcmp(vgs_nvml_device(i)->uuid, uuid, 16)) {
      *(nvmlDevice_t *)handle = vgs_nvml_handle(i);
      return NVML_SUCCESS;
    }
  return NVML_ERROR_NOT_FOUND;
}

/* "GPU-" and 32 hexadecimal digits with dashes after the 8th, 12th, 16th and 20th. */
static bool parse_uuid(const char *text, uint8_t uuid[16]) {
  static const int groups[] = {4, 2, 2, 2, 6};
  if (strlen(text) != 40 || strncasecmp(text, "GPU", 3))
    return false;
  text += 3;
  for (int group = 0; group < 5; group++) {
    if (*text++ != '-')
      return false;
    for (int i = 0; i < groups[group]; i++, text += 2) {
      unsigned byte;
      if (!strchr("0123456789abcdefABCDEF", text[0]) || sscanf(text, "%2x", &byte) != 1)
        return false;
      *uuid++ = (uint8_t)byte;
    }
  }
  return true;
}

nvmlReturn_t vgs_nvmlDeviceGetHandleByUUID(const char *text, void *handle) {
  uint8_t uuid[16];
  if (!text || !handle)
    return NVML_ERROR_INVALID_ARGUMENT;
  return parse_uuid(text, uuid) ? find_uuid(uuid, handle) : NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t vgs_nvmlDeviceGetHandleByUUIDV(nvmlUUID_t *uuid, void *handle) {
  enum { ASCII = 1, BINARY = 2, VERSION = 0x01000034 };
  if (!uuid || !handle)
    return NVML_ERROR_INVALID_ARGUMENT;
  if (uuid->version != VERSION)
    return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  if (uuid->type == BINARY)
    return find_uuid((const uint8_t *)uuid->value, handle);
  if (uuid->type != ASCII || !memchr(uuid->value, 0, sizeof uuid->value))
    return NVML_ERROR_INVALID_ARGUMENT;
  return vgs_nvmlDeviceGetHandleByUUID(uuid->value, handle);
}

/* No board's serial number is shown to a guest, so none is ever found. */
nvmlReturn_t vgs_nvmlDeviceGetHandleBySerial(const char *serial, void *handle) {
  return serial && handle ? NVML_ERROR_NOT_FOUND : NVML_ERROR_INVALID_ARGUMENT;
}

/* The processes NVML lists are the guest's own, so their names are in its own /proc. Cut to fit, as NVIDIA's library
 * does. */
nvmlReturn_t vgs_nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length) {
  char path[32];
  if (!name || !length)
    return NVML_ERROR_INVALID_ARGUMENT;
  snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return NVML_ERROR_NOT_FOUND;
  char text[4096];
  ssize_t nbytes = read(fd, text, sizeof text - 1);
  close(fd);
  if (nbytes <= 0)
    return NVML_ERROR_NOT_FOUND; /* a kernel thread, or a process that has just ended */
  text[nbytes] = 0;
  snprintf(name, length, "%s", text);
  return NVML_SUCCESS;
}
