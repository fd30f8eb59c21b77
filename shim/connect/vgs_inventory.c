#include "vgs_inventory.h"
#include <stdlib.h>
#include <string.h>

/* Little-endian numbers of `nbytes_each` bytes each, `capacity` at most (this library never uses the ids beyond
 * it). */
static uint32_t unpack_numbers(struct vgs_unpacker *unpacker, void *into, uint32_t capacity, uint32_t nbytes_each) {
  uint32_t nbytes;
  const uint8_t *data = vgs_unpack_bin(unpacker, &nbytes);
  if (!data || nbytes % nbytes_each)
    unpacker->failed = true;
  if (unpacker->failed)
    return 0;
  uint32_t count = nbytes / nbytes_each;
  if (count > capacity)
    count = capacity;
  memcpy(into, data, (size_t)count * nbytes_each); /* both ends are little-endian: see vgs_session.c */
  return count;
}

static void unpack_pair(struct vgs_unpacker *unpacker, int64_t pair[2], int64_t least, int64_t greatest) {
  if (vgs_unpack_array(unpacker) != 2)
    unpacker->failed = true;
  for (int i = 0; i < 2; i++)
    pair[i] = vgs_unpack_int(unpacker, least, greatest);
}

static void unpack_topology(struct vgs_device *device, struct vgs_unpacker *unpacker) {
  if (vgs_unpack_array(unpacker) != 2)
    unpacker->failed = true;
  uint32_t first = unpack_numbers(unpacker, device->gpc_of_tpc, VGS_TPC_MAX, 1);
  uint32_t second = unpack_numbers(unpacker, device->tpc_in_gpc, VGS_TPC_MAX, 1);
  device->tpc_count = first == second ? first : 0;
}

static void unpack_device(struct vgs_device *device, struct vgs_unpacker *unpacker) {
  enum { NAME = 1, UUID = 2, PCI = 4, MEMORY = 8, ATTRIBUTES = 16, LIMITS = 32, PRIORITIES = 64, ALL = 127 };
  unsigned seen = 0;
  for (int i = 0; i < VGS_ATTRIBUTE_MAX; i++)
    device->attributes[i] = VGS_ATTRIBUTE_INVALID;
  for (int i = 0; i < VGS_LIMIT_MAX; i++)
    device->limits[i] = VGS_LIMIT_UNSUPPORTED;
  for (uint32_t left = vgs_unpack_map(unpacker); left && !unpacker->failed; left--) {
    uint32_t nbytes;
    int64_t pair[2];
    const char *key = vgs_unpack_str(unpacker, &nbytes);
    if (vgs_str_is(key, nbytes, "name")) {
      vgs_unpack_text(unpacker, device->name, sizeof device->name);
      seen |= NAME;
    } else if (vgs_str_is(key, nbytes, "uuid")) {
      const uint8_t *uuid = vgs_unpack_bin(unpacker, &nbytes);
      if (uuid && nbytes == sizeof device->uuid)
        memcpy(device->uuid, uuid, sizeof device->uuid);
      else
        unpacker->failed = true;
      seen |= UUID;
    } else if (vgs_str_is(key, nbytes, "pci")) {
      vgs_unpack_text(unpacker, device->pci, sizeof device->pci);
      seen |= PCI;
    } else if (vgs_str_is(key, nbytes, "memory_nbytes")) {
      device->memory_nbytes = (uint64_t)vgs_unpack_int(unpacker, 0, INT64_MAX);
      seen |= MEMORY;
    } else if (vgs_str_is(key, nbytes, "attributes")) {
      unpack_numbers(unpacker, device->attributes, VGS_ATTRIBUTE_MAX, 4);
      seen |= ATTRIBUTES;
    } else if (vgs_str_is(key, nbytes, "limits")) {
      unpack_numbers(unpacker, device->limits, VGS_LIMIT_MAX, 8);
      seen |= LIMITS;
    } else if (vgs_str_is(key, nbytes, "priorities")) {
      unpack_pair(unpacker, pair, INT32_MIN, INT32_MAX);
      device->priority_least = (int32_t)pair[0];
      device->priority_greatest = (int32_t)pair[1];
      seen |= PRIORITIES;
    } else if (vgs_str_is(key, nbytes, "granularity")) {
      unpack_pair(unpacker, pair, 0, INT64_MAX);
      device->granularity_minimum = (uint64_t)pair[0];
      device->granularity_recommended = (uint64_t)pair[1];
    } else if (vgs_str_is(key, nbytes, "context_nbytes"))
      device->context_nbytes = (uint64_t)vgs_unpack_int(unpacker, 0, INT64_MAX);
    else if (vgs_str_is(key, nbytes, "peers"))
      unpack_numbers(unpacker, device->peers, VGS_DEVICE_MAX * VGS_PEER_ATTRIBUTES, sizeof device->peers[0][0]);
    else if (vgs_str_is(key, nbytes, "sm_topology"))
      unpack_topology(device, unpacker);
    else
      vgs_unpack_skip(unpacker);
  }
  if (seen != ALL)
    unpacker->failed = true;
}

static void unpack_devices(struct vgs_inventory *inventory, struct vgs_unpacker *unpacker) {
  uint32_t count = vgs_unpack_array(unpacker);
  if (count > VGS_DEVICE_MAX || inventory->devices) {
    unpacker->failed = true;
    return;
  }
  inventory->devices = calloc(count ? count : 1, sizeof *inventory->devices);
  if (!inventory->devices) {
    unpacker->failed = true;
    return;
  }
  inventory->device_count = count;
  for (uint32_t i = 0; i < count && !unpacker->failed; i++)
    unpack_device(&inventory->devices[i], unpacker);
}

void vgs_inventory_init(struct vgs_inventory *inventory, struct vgs_unpacker *unpacker) {
  memset(inventory, 0, sizeof *inventory);
  for (uint32_t left = vgs_unpack_map(unpacker); left && !unpacker->failed; left--) {
    uint32_t nbytes;
    const char *key = vgs_unpack_str(unpacker, &nbytes);
    if (vgs_str_is(key, nbytes, "driver_version"))
      inventory->driver_version = (int32_t)vgs_unpack_int(unpacker, 1, INT32_MAX);
    else if (vgs_str_is(key, nbytes, "driver_release"))
      vgs_unpack_text(unpacker, inventory->driver_release, sizeof inventory->driver_release);
    else if (vgs_str_is(key, nbytes, "backend")) {
      const char *backend = vgs_unpack_str(unpacker, &nbytes);
      inventory->simulated = vgs_str_is(backend, nbytes, "simulator");
    } else if (vgs_str_is(key, nbytes, "devices"))
      unpack_devices(inventory, unpacker);
    else
      vgs_unpack_skip(unpacker);
  }
  if (!inventory->driver_version || !inventory->devices)
    unpacker->failed = true;
  if (unpacker->failed)
    vgs_inventory_fini(inventory);
}

void vgs_inventory_fini(struct vgs_inventory *inventory) {
  free(inventory->devices);
  memset(inventory, 0, sizeof *inventory);
}
