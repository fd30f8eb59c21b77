/* The daemon's description of its devices, received in one message at cuInit. */
#ifndef VGS_INVENTORY_H
#define VGS_INVENTORY_H

#include "vgs_msgpack.h"
#include <stdbool.h>
#include <stdint.h>

enum { VGS_TPC_MAX = 512 };
enum { VGS_DEVICE_MAX = 64, VGS_ATTRIBUTE_MAX = 256, VGS_LIMIT_MAX = 32, VGS_PEER_ATTRIBUTES = 5 };
#define VGS_ATTRIBUTE_INVALID INT32_MIN  /* the driver answers INVALID_VALUE */
#define VGS_LIMIT_UNSUPPORTED UINT64_MAX /* the driver answers UNSUPPORTED_LIMIT */

struct vgs_device {
  char name[256];
  uint8_t uuid[16];
  char pci[16]; /* dddd:bb:dd.f */
  uint64_t memory_nbytes;
  int32_t attributes[VGS_ATTRIBUTE_MAX]; /* by CUdevice_attribute */
  uint64_t limits[VGS_LIMIT_MAX];        /* by CUlimit */
  int32_t priority_least, priority_greatest;
  uint64_t granularity_minimum, granularity_recommended; /* bytes */
  uint64_t context_nbytes;
  int32_t peers[VGS_DEVICE_MAX][VGS_PEER_ATTRIBUTES]; /* by the other device and CUdevice_P2PAttribute from 1 */
  /* The location of each pair of multiprocessors, as cuBLASLt asks for it; count 0: unknown. */
  uint32_t tpc_count;
  uint8_t gpc_of_tpc[VGS_TPC_MAX], tpc_in_gpc[VGS_TPC_MAX];
};

struct vgs_inventory {
  int32_t driver_version; /* 13000 = CUDA 13.0 */
  char driver_release[32];
  bool simulated;
  uint32_t device_count;
  struct vgs_device *devices; /* owned */
};

/* Read an inventory map. Whatever is missing, ill-typed or out of range fails the unpacker; then nothing is owned. */
void vgs_inventory_init(struct vgs_inventory *inventory, struct vgs_unpacker *unpacker);
void vgs_inventory_fini(struct vgs_inventory *inventory);

#endif
