/* The functions by which the simulator's C half calls its Python half: everything about images and kernels. Each hook
 * is called with no lock held, from any thread, and returns a CUresult; `why` receives one line for the log when it is
 * not 0. */
#ifndef VGX_SIM_HOOKS_H
#define VGX_SIM_HOOKS_H

#include <stdint.h>

#include "vgx_sim_abi.h"

#define VGX_SIM_WHY_NBYTES 512
#define VGX_SIM_NAME_NBYTES 1024
#define VGX_SIM_SPACE_MANAGED 2u

/* A kernel as cuFuncGetAttribute and cuFuncGetParamInfo see it. */
struct vgx_sim_kernel_info {
  uint64_t kernel;        /* Python's id, for compile() */
  uint32_t param_count;   /* entries used of the arrays given to describe_kernel */
  uint32_t param_nbytes;  /* size of the parameter block */
  uint32_t shared_nbytes; /* static shared memory */
  uint32_t const_nbytes;
  uint32_t local_nbytes;
  uint32_t register_count;    /* an estimate; stated as such in docs */
  uint32_t max_threads;       /* .maxntid, else the device's */
  uint32_t required_block[3]; /* .reqntid, else 0 */
  uint32_t cluster[3];        /* .reqnctapercluster, else 0 */
  int32_t ptx_version;        /* 75 for sm_75 targets: CU_FUNC_ATTRIBUTE_PTX_VERSION */
  int32_t binary_version;     /* the device's */
};

struct vgx_sim_variable {
  uint64_t nbytes;
  uint64_t align;
  uint32_t space; /* 0 global, 1 const, VGX_SIM_SPACE_MANAGED */
  uint32_t flags;
};

struct vgx_sim_compiled {
  const struct vgx_sim_code *code;
  uint64_t frame_nbytes; /* scratch each pool thread needs */
  uint64_t local_nbytes; /* local memory each pool thread needs */
  uint32_t shared_static_nbytes;
  uint32_t cooperative; /* enum vgx_sim_cooperative */
};

enum vgx_sim_cooperative {
  VGX_SIM_NOT_COOPERATIVE,
  VGX_SIM_COOPERATIVE_PLAIN,    /* independent: its CTAs do not wait for each other */
  VGX_SIM_COOPERATIVE_RESIDENT, /* all CTAs at once, on one thread */
};

#define VGX_SIM_FOLLOWED_MAX 8u

/* Addresses of functions that a launch calls through pointers, where its kernel cannot hold all that these may name. */
struct vgx_sim_followed {
  uint64_t count;
  uint64_t pointers[VGX_SIM_FOLLOWED_MAX];
};

struct vgx_sim_hooks {
  /* Parse an image for a device; *image is Python's id; `kernel_count` and `variable_count` are the numbers of its
   * kernels and variables. */
  int32_t (*load_image)(uint32_t device, const void *data, uint64_t nbytes, uint64_t *image, uint32_t *kernel_count,
                        uint32_t *variable_count, char *why);
  int32_t (*unload_image)(uint64_t image);
  /* The index-th kernel or variable (0-based), its name NUL-terminated in `name` (VGX_SIM_NAME_NBYTES). */
  int32_t (*kernel_name)(uint64_t image, uint32_t index, char *name);
  int32_t (*describe_kernel)(uint64_t image, const char *name, struct vgx_sim_kernel_info *info,
                             uint32_t *param_offsets, uint32_t *param_nbytes, uint32_t param_capacity, char *why);
  int32_t (*describe_variable)(uint64_t image, uint32_t index, char *name, struct vgx_sim_variable *variable);
  /* Fill `data` (the variable's size) with its initial bytes. `addresses[i]` is the device address of variable i. */
  int32_t (*initial_bytes)(uint64_t image, uint32_t index, const uint64_t *addresses, uint8_t *data);
  /* Compile for a block shape (cached). `symbols[i]` receives the variable index of the kernel's i-th symbol;
   * `addresses[i]` is the device address of variable i. */
  int32_t (*compile)(uint64_t kernel, uint32_t block_x, uint32_t block_y, uint32_t block_z, uint32_t flags,
                     const struct vgx_sim_followed *followed, const uint64_t *addresses, struct vgx_sim_compiled *out,
                     uint32_t *symbols, uint32_t symbol_capacity, uint32_t *symbol_count, char *why);
  /* cuLink: PTX inputs in, one loadable image out. `out` NULL: only check that each input can be linked. */
  int32_t (*link_images)(uint32_t device, const void *const *data, const uint64_t *nbytes, uint32_t count, void **out,
                         uint64_t *out_nbytes, char *why);
};

#define VGX_SIM_COMPILE_COOPERATIVE 1u
#define VGX_SIM_COMPILE_WATCHED 2u      /* for the sanitizer */
#define VGX_SIM_COMPILE_COUNTED 4u      /* for the profiler */
#define VGX_SIM_COMPILE_TRACKED 8u      /* for initcheck of shared memory */
#define VGX_SIM_COMPILE_CLUSTER_SHIFT 8 /* x, y and z of a cluster, 8 bits each; 0: none */

#endif
