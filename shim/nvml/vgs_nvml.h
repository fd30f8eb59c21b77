/* libnvidia-ml.so.1: what its files share.
 *
 * Most exported functions are rows of a generated table that vgs_nvml_answer interprets: it checks the arguments, takes
 * the answer from the snapshot that came with nvmlInit or asks vgpud, and writes the results. The rest are bodies
 * `vgs_nvmlX` in this folder. */
#ifndef VGS_NVML_H
#define VGS_NVML_H

#include "vgs_msgpack.h"
#include "vgs_nvml_api.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  NVML_SUCCESS = 0,
  NVML_ERROR_UNINITIALIZED = 1,
  NVML_ERROR_INVALID_ARGUMENT = 2,
  NVML_ERROR_NOT_SUPPORTED = 3,
  NVML_ERROR_NO_PERMISSION = 4,
  NVML_ERROR_NOT_FOUND = 6,
  NVML_ERROR_INSUFFICIENT_SIZE = 7,
  NVML_ERROR_DRIVER_NOT_LOADED = 9,
  NVML_ERROR_TIMEOUT = 10,
  NVML_ERROR_FUNCTION_NOT_FOUND = 13,
  NVML_ERROR_GPU_IS_LOST = 15,
  NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18,
  NVML_ERROR_MEMORY = 20,
  NVML_ERROR_INSUFFICIENT_RESOURCES = 23,
  NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
  NVML_ERROR_UNKNOWN = 999,
};

enum { VGS_NVML_ARGUMENT_MAX = 4, VGS_NVML_SYSTEM = -1 };

/* The roles of protocol/gen/nvml.py. */
enum vgs_nvml_role {
  VGS_NVML_DEVICE,
  VGS_NVML_ABSENT,
  VGS_NVML_ABSENT_VGPU,
  VGS_NVML_GIVEN,
  VGS_NVML_WRITTEN,
  VGS_NVML_TEXT,
  VGS_NVML_LENGTH,
  VGS_NVML_FIXED_TEXT,
  VGS_NVML_STRUCT,
  VGS_NVML_VERSIONED,
  VGS_NVML_COUNT,
  VGS_NVML_ITEMS,
  VGS_NVML_POINTER,
  VGS_NVML_OPTIONAL,
};

struct vgs_nvml_param {
  uint8_t role;
  uint8_t inputs;       /* VERSIONED: words after the version that the caller gives */
  uint32_t nbytes;      /* of what is written: scalar, struct, one item, fixed text */
  uint32_t versions[2]; /* VERSIONED: the accepted ones; 0: none */
};

enum vgs_nvml_source { VGS_NVML_NONE, VGS_NVML_ASKED };

struct vgs_nvml_function {
  const char *name;
  const struct vgs_nvml_param *params;
  uint8_t param_count, source;
  uint16_t refusal; /* NONE: the result if the arguments are valid */
};

extern const struct vgs_nvml_function vgs_nvml_functions[]; /* sorted by name */
extern const unsigned vgs_nvml_function_count;

/* A query: a row, a device (or VGS_NVML_SYSTEM), the caller's integers. */
struct vgs_nvml_question {
  unsigned function;
  int device;
  uint32_t count;
  int64_t arguments[VGS_NVML_ARGUMENT_MAX];
};

/* One answer. `value` is msgpack: an array of the results in the order of the parameters. */
struct vgs_nvml_reply {
  nvmlReturn_t result;
  struct vgs_unpacker value;
  uint8_t *body; /* owned; NULL when the value lies in the snapshot */
};

#endif
