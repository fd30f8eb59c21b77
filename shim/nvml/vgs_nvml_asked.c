/* Functions whose question to vgpud is not simply their arguments: a pair of devices, one field at a time, a count
 * that follows its array. */
#include "vgs_inventory.h"
#include "vgs_nvml_answer.h"
#include "vgs_nvml_init.h"
#include <string.h>

static uint64_t word(const void *pointer) { return (uint64_t)(uintptr_t)pointer; }

/* Each value carries a result of its own, as in NVIDIA's library; the call succeeds. */
nvmlReturn_t vgs_nvmlDeviceGetFieldValues(nvmlDevice_t device, unsigned int count, nvmlFieldValue_t *values) {
  if (vgs_nvml_index(device) < 0 || !values || !count)
    return NVML_ERROR_INVALID_ARGUMENT;
  for (unsigned i = 0; i < count; i++) {
    nvmlFieldValue_t value;
    uint64_t words[] = {word(device), values[i].fieldId, values[i].scopeId, word(&value)};
    nvmlReturn_t result = vgs_nvml_answer(VGS_ASK_nvmlDeviceGetFieldValues, words);
    if (result) {
      values[i].nvmlReturn = result;
      continue;
    }
    value.fieldId = values[i].fieldId;
    value.scopeId = values[i].scopeId;
    values[i] = value;
  }
  return NVML_SUCCESS;
}

/* To clear a counter changes it for everybody who uses the device. */
nvmlReturn_t vgs_nvmlDeviceClearFieldValues(nvmlDevice_t device, unsigned int count, nvmlFieldValue_t *values) {
  if (vgs_nvml_index(device) < 0 || !values || !count)
    return NVML_ERROR_INVALID_ARGUMENT;
  for (unsigned i = 0; i < count; i++)
    values[i].nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
  return NVML_SUCCESS;
}

/* Without an array the call says how many samples it needs room for; some more may come before the next call. */
nvmlReturn_t vgs_nvmlDeviceGetSamples(nvmlDevice_t device, unsigned int type, unsigned long long since,
                                      unsigned int *value_type, unsigned int *count, void *samples) {
  enum { MORE = 32 };
  if (!count || !value_type)
    return NVML_ERROR_INVALID_ARGUMENT;
  uint32_t capacity = samples ? *count : 0;
  uint64_t words[] = {word(device), type, since, word(value_type), word(&capacity), word(samples)};
  nvmlReturn_t result = vgs_nvml_answer(VGS_ASK_nvmlDeviceGetSamples, words);
  if (!samples && (!result || result == NVML_ERROR_INSUFFICIENT_SIZE)) {
    *count = capacity + MORE;
    return NVML_SUCCESS;
  }
  if (!result || result == NVML_ERROR_INSUFFICIENT_SIZE)
    *count = capacity;
  return result;
}

nvmlReturn_t vgs_nvmlDeviceGetProcessUtilization(nvmlDevice_t device, void *utilization, unsigned int *count,
                                                 unsigned long long since) {
  if (!count)
    return NVML_ERROR_INVALID_ARGUMENT;
  if (!utilization)
    *count = 0; /* the caller asks for the number alone */
  uint64_t words[] = {word(device), since, word(count), word(utilization)};
  return vgs_nvml_answer(VGS_ASK_nvmlDeviceGetProcessUtilization, words);
}

/* `nbytes`: of the caller's array, which is filled up with "unknown". */
nvmlReturn_t vgs_nvmlDeviceGetSupportedPerformanceStates(nvmlDevice_t device, void *states, unsigned int nbytes) {
  enum { UNKNOWN = 32 }; /* NVML_PSTATE_UNKNOWN */
  static const uint32_t unknown = UNKNOWN;
  vgpuPerformanceStates_t all;
  if (!states)
    return NVML_ERROR_INVALID_ARGUMENT;
  uint64_t words[] = {word(device), word(&all)};
  nvmlReturn_t result = vgs_nvml_answer(VGS_ASK_nvmlDeviceGetSupportedPerformanceStates, words);
  if (result)
    return result;
  unsigned room = nbytes / sizeof unknown, max = sizeof all.states / sizeof *all.states;
  for (unsigned i = room; i < max; i++)
    if (all.states[i] != UNKNOWN)
      return NVML_ERROR_INSUFFICIENT_SIZE;
  for (unsigned i = 0; i < room; i++)
    memcpy((char *)states + i * sizeof unknown, i < max ? &all.states[i] : &unknown, sizeof unknown);
  return NVML_SUCCESS;
}

/* A question about two devices: the second travels as its index. */
static nvmlReturn_t ask_pair(unsigned row, nvmlDevice_t device, nvmlDevice_t device2, unsigned int *out) {
  int second = vgs_nvml_index(device2);
  if (second < 0)
    return NVML_ERROR_INVALID_ARGUMENT;
  uint64_t words[] = {word(device), (uint64_t)second, word(out)};
  return vgs_nvml_answer(row, words);
}

nvmlReturn_t vgs_nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device, nvmlDevice_t device2, unsigned int *path) {
  return ask_pair(VGS_ASK_nvmlDeviceGetTopologyCommonAncestor, device, device2, path);
}

nvmlReturn_t vgs_nvmlDeviceOnSameBoard(nvmlDevice_t device, nvmlDevice_t device2, unsigned int *same) {
  return ask_pair(VGS_ASK_nvmlDeviceOnSameBoard, device, device2, same);
}

/* NCCL asks for every pair, a device with itself included, and gives up on any error: so unreachable peers are
 * reported by a status. What kernels can do agrees with cuDeviceCanAccessPeer, as it comes from the same inventory;
 * by which link (NvLink, PCIe) is the host's answer for peers that reach each other. */
nvmlReturn_t vgs_nvmlDeviceGetP2PStatus(nvmlDevice_t device, nvmlDevice_t device2, unsigned int index,
                                        unsigned int *status) {
  enum { OK = 0, PEERS_NOT_SUPPORTED = 5 };
  enum { READ = 0, WRITE = 1, ATOMICS = 3, INDEX_UNKNOWN = 5 }; /* nvmlGpuP2PCapsIndex_t */
  enum { ACCESS_SUPPORTED = 2, NATIVE_ATOMICS = 3 };            /* CUdevice_P2PAttribute */
  int first = vgs_nvml_index(device), second = vgs_nvml_index(device2);
  if (first < 0 || second < 0 || index >= INDEX_UNKNOWN || !status)
    return NVML_ERROR_INVALID_ARGUMENT;
  const int32_t *link = vgs_nvml_device((uint32_t)first)->peers[second];
  bool access = link[ACCESS_SUPPORTED - 1] == 1, atomics = link[NATIVE_ATOMICS - 1] == 1;
  if (first == second || (index == ATOMICS ? atomics : access && (index == READ || index == WRITE))) {
    *status = OK;
    return NVML_SUCCESS;
  }
  *status = PEERS_NOT_SUPPORTED;
  if (!access || index == READ || index == WRITE || index == ATOMICS)
    return NVML_SUCCESS;
  uint32_t answer = PEERS_NOT_SUPPORTED;
  uint64_t words[] = {word(device), (uint64_t)second, index, word(&answer)};
  if (!vgs_nvml_answer(VGS_ASK_nvmlDeviceGetP2PStatus, words))
    *status = answer;
  return NVML_SUCCESS;
}
