/* Modules, functions, libraries and kernels, shared by the files that implement them.
 *
 * Function and kernel structs are never freed: a client may name one after its module is gone, and is answered
 * INVALID_HANDLE. */
#ifndef VGX_SIM_MODULE_H
#define VGX_SIM_MODULE_H

#include "vgx_sim_internal.h"

/* A kernel compiled for one block shape. */
struct vgx_sim_variant {
  struct vgx_sim_variant *next;
  uint32_t block[3], flags;
  struct vgx_sim_followed followed;
  bool ready; /* false: a thread is compiling it */
  CUresult result;
  struct vgx_sim_compiled compiled;
  uint64_t *symbols; /* device addresses, in the compiler's order */
};

struct CUfunc_st {
  uint32_t magic;
  CUmodule module;
  char *name;
  struct vgx_sim_kernel_info info;
  uint32_t *param_offsets, *param_nbytes;
  int32_t attributes[VGW_FUNC_ATTRIBUTE_COUNT];
  uint32_t kernel_changes; /* how many of its kernel's changes `attributes` contains */
  struct vgx_sim_variant *variants;
  struct CUfunc_st *next;
};

/* An image in a context. */
struct CUmod_st {
  uint32_t magic;
  CUcontext ctx; /* NULL: a library loaded without a context: names only */
  CUlibrary library;
  uint64_t image; /* Python's id */
  uint32_t kernel_count, variable_count;
  uint64_t base; /* one allocation holds all variables; 0: there are none */
  uint64_t *addresses;
  struct vgx_sim_variable *variables;
  char **variable_names;
  CUfunction functions;
  uint32_t pins;                 /* calls that use the module's functions now: unloading waits for them */
  struct CUmod_st *next;         /* in its context */
  struct CUmod_st *library_next; /* in its library */
};

struct CUkern_st {
  uint32_t magic;
  CUlibrary library;
  char *name;
  /* What cuKernelSetAttribute set, by device, and how often; INT32_MIN: nothing. */
  int32_t set[VGX_SIM_DEVICES_MAX][VGW_FUNC_ATTRIBUTE_COUNT];
  uint32_t changes[VGX_SIM_DEVICES_MAX];
  struct CUkern_st *next;
};

/* A managed variable at an address that the client and all contexts share. */
struct vgx_sim_managed {
  struct vgx_sim_managed *next;
  uint64_t address;
  char name[];
};

struct CUlib_st {
  uint32_t magic;
  struct vgx_sim_managed *managed;
  uint8_t *image;
  uint64_t nbytes;
  CUmodule modules; /* one per context that used it; the last in the list was loaded first */
  CUkernel kernels;
};

/* Load an image into a context (NULL: for device 0, names only). */
CUresult vgx_sim_module_load(CUcontext ctx, CUlibrary library, const void *image, uint64_t nbytes, CUmodule *made);
/* Wait for the module's users and free it. No lock held; the module is in no list any more. */
void vgx_sim_module_unload(CUmodule module);
/* The function of that name, made on first use; NOT_FOUND. */
CUresult vgx_sim_module_function(CUmodule module, const char *name, CUfunction *function);
CUresult vgx_sim_module_global(CUmodule module, const char *name, CUdeviceptr *address, size_t *nbytes);

/* Unload every module of a context that is being destroyed; no lock held. */
void vgx_sim_unload_modules(CUcontext ctx);

/* The address of a library's managed variable; 0: the address in its module. */
uint64_t vgx_sim_managed_address(CUlibrary library, const char *name);
struct vgx_sim_managed *vgx_sim_managed_find_locked(CUlibrary library, const char *name);

#endif
