/* Hand-written kernels standing for compiled ones, and the hooks that serve them: image "vgt" has the kernels below and
 * the variables `gv` (4 bytes, 42) and `table` (1000 bytes, each 7). Counts loaded images and compiled kernels. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "vgx_sim.h"

static uint64_t param(const struct vgx_sim_launch *l, int index) {
  uint64_t value;
  memcpy(&value, l->params + 8 * index, 8);
  return value;
}

/* One CTA of a kernel. */
typedef void vgt_cta_fn(const struct vgx_sim_launch *l, struct vgx_sim_thread *t, uint64_t cta);

/* (dst, value): dst[cta] = value + cta */
static void fill(const struct vgx_sim_launch *l, struct vgx_sim_thread *t, uint64_t cta) {
  (void)t;
  ((uint64_t *)param(l, 0))[cta] = param(l, 1) + cta;
}

/* (address): writes one byte there, unchecked by UBSan */
__attribute__((no_sanitize("undefined"))) static void poke(const struct vgx_sim_launch *l, struct vgx_sim_thread *t,
                                                           uint64_t cta) {
  (void)t, (void)cta;
  *(volatile uint8_t *)param(l, 0) = 1;
}

static void spin(const struct vgx_sim_launch *l, struct vgx_sim_thread *t, uint64_t cta) {
  (void)l, (void)t, (void)cta;
  for (volatile uint64_t i = 0;; i++)
    ;
}

/* (address): CTA 0 faults while the others wait for it */
static void fault_while_waited_for(const struct vgx_sim_launch *l, struct vgx_sim_thread *t, uint64_t cta) {
  if (cta == 0) {
    usleep(20000);
    poke(l, t, cta);
  }
  spin(l, t, cta);
}

/* (flags): each CTA waits for the one below it */
static void chain(const struct vgx_sim_launch *l, struct vgx_sim_thread *t, uint64_t cta) {
  (void)t;
  uint32_t *flags = (uint32_t *)param(l, 0);
  while (cta && !__atomic_load_n(&flags[cta - 1], __ATOMIC_ACQUIRE))
    ;
  __atomic_store_n(&flags[cta], 1, __ATOMIC_RELEASE);
}

static void trap(const struct vgx_sim_launch *l, struct vgx_sim_thread *t, uint64_t cta) {
  (void)t, (void)cta;
  l->services->fail(l->services, 719, "trap", NULL, 0);
}

static void illegal(const struct vgx_sim_launch *l, struct vgx_sim_thread *t, uint64_t cta) {
  (void)l, (void)t, (void)cta;
  __builtin_trap();
}

static void assertion(const struct vgx_sim_launch *l, struct vgx_sim_thread *t, uint64_t cta) {
  char (*texts)[16] = (char (*)[16])t->local; /* services read only memory that kernels can reach */
  strcpy(texts[0], "x > 0"), strcpy(texts[1], "file.cu"), strcpy(texts[2], "kernel");
  l->services->assertfail(l->services, texts[0], texts[1], 12, texts[2], (uint32_t[]){(uint32_t)cta, 0, 0}, 0);
}

/* (format, args): device addresses */
static void print(const struct vgx_sim_launch *l, struct vgx_sim_thread *t, uint64_t cta) {
  (void)t, (void)cta;
  l->services->vprintf(l->services, (const char *)param(l, 0), (const uint8_t *)param(l, 1));
}

/* (offset): touches a byte of the shared window */
static void shared(const struct vgx_sim_launch *l, struct vgx_sim_thread *t, uint64_t cta) {
  (void)cta;
  *(volatile uint8_t *)(t->shared + param(l, 0)) = 1;
}

/* (dst): writes the number of blocks of 1000 bytes that malloc returns before NULL; frees them all */
static void heap(const struct vgx_sim_launch *l, struct vgx_sim_thread *t, uint64_t cta) {
  (void)t, (void)cta;
  enum { MOST = 20000 };
  static void *blocks[MOST];
  uint64_t count = 0;
  while (count < MOST && (blocks[count] = l->services->malloc(l->services, 1000)))
    memset(blocks[count++], 0x5a, 1000);
  for (uint64_t i = 0; i < count; i++)
    l->services->free(l->services, blocks[i]);
  *(uint64_t *)param(l, 0) = count;
}

/* (a, b): does nothing */
static void ignore(const struct vgx_sim_launch *l, struct vgx_sim_thread *t, uint64_t cta) {
  (void)l, (void)t, (void)cta;
}

/* adds 1 to `gv`, its first symbol */
static void count_up(const struct vgx_sim_launch *l, struct vgx_sim_thread *t, uint64_t cta) {
  (void)t, (void)cta;
  __atomic_fetch_add((uint32_t *)l->symbols[0], 1, __ATOMIC_RELAXED);
}

#define KERNELS(X)                                                                                                     \
  X(fill, 2)                                                                                                           \
  X(poke, 1)                                                                                                           \
  X(spin, 0)                                                                                                           \
  X(fault_while_waited_for, 1)                                                                                         \
  X(chain, 1) X(trap, 0) X(illegal, 0) X(assertion, 0) X(print, 2) X(shared, 1) X(heap, 1) X(ignore, 2) X(count_up, 0)

#define RUN(name, count)                                                                                               \
  static uint32_t run_##name(const struct vgx_sim_launch *l, struct vgx_sim_thread *t, uint32_t state,                 \
                             uint32_t warp) {                                                                          \
    (void)state, (void)warp;                                                                                           \
    name(l, t, t->cta[0] + (uint64_t)l->grid[0] * (t->cta[1] + (uint64_t)l->grid[1] * t->cta[2]));                     \
    return 0;                                                                                                          \
  }
KERNELS(RUN)

static const struct {
  const char *name;
  struct vgx_sim_code code;
  uint32_t params;
} kernels[] = {
#define ROW(name, count) {#name, {.warp = run_##name, .warp_count = 1, .turns = VGX_SIM_IN_ORDER}, count},
    KERNELS(ROW)};
#define KERNEL_COUNT (sizeof kernels / sizeof kernels[0])

uint32_t vgt_compiled, vgt_loaded; /* atomic */

static int32_t load_image(uint32_t device, const void *data, uint64_t nbytes, uint64_t *image, uint32_t *kernel_count,
                          uint32_t *variable_count, char *why) {
  (void)device;
  if (nbytes < 3 || memcmp(data, "vgt", 3) != 0) {
    strcpy(why, "not a test image");
    return CUDA_ERROR_INVALID_IMAGE;
  }
  __atomic_fetch_add(&vgt_loaded, 1, __ATOMIC_RELAXED);
  *image = 1;
  *kernel_count = KERNEL_COUNT;
  *variable_count = 2;
  return 0;
}

static int32_t unload_image(uint64_t image) {
  (void)image;
  __atomic_fetch_sub(&vgt_loaded, 1, __ATOMIC_RELAXED);
  return 0;
}

static int32_t kernel_name(uint64_t image, uint32_t index, char *name) {
  (void)image;
  strcpy(name, kernels[index].name);
  return 0;
}

static int32_t describe_kernel(uint64_t image, const char *name, struct vgx_sim_kernel_info *info, uint32_t *offsets,
                               uint32_t *nbytes, uint32_t capacity, char *why) {
  (void)image, (void)capacity, (void)why;
  for (uint32_t i = 0; i < KERNEL_COUNT; i++) {
    if (strcmp(kernels[i].name, name) != 0)
      continue;
    *info = (struct vgx_sim_kernel_info){.kernel = i,
                                         .param_count = kernels[i].params,
                                         .param_nbytes = 8 * kernels[i].params,
                                         .register_count = 32,
                                         .max_threads = 1024,
                                         .ptx_version = 75,
                                         .binary_version = 90};
    for (uint32_t p = 0; p < kernels[i].params; p++) {
      offsets[p] = 8 * p;
      nbytes[p] = 8;
    }
    return 0;
  }
  return CUDA_ERROR_NOT_FOUND;
}

static int32_t describe_variable(uint64_t image, uint32_t index, char *name, struct vgx_sim_variable *variable) {
  (void)image;
  strcpy(name, index ? "table" : "gv");
  *variable = (struct vgx_sim_variable){.nbytes = index ? 1000 : 4, .align = index ? 8 : 4};
  return 0;
}

/* Set to 1 by a test, it stops the next load of a module before the variables are filled, and becomes 2 until the test
 * sets it to 0. */
int vgt_gate; /* atomic */

static int32_t initial_bytes(uint64_t image, uint32_t index, const uint64_t *addresses, uint8_t *data) {
  (void)image, (void)addresses;
  int shut = 1;
  __atomic_compare_exchange_n(&vgt_gate, &shut, 2, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(&vgt_gate, __ATOMIC_SEQ_CST) == 2)
    usleep(200);
  if (index)
    memset(data, 7, 1000);
  else
    memcpy(data, &(uint32_t){42}, 4);
  return 0;
}

static int32_t compile(uint64_t kernel, uint32_t x, uint32_t y, uint32_t z, uint32_t flags,
                       const struct vgx_sim_followed *followed, const uint64_t *addresses, struct vgx_sim_compiled *out,
                       uint32_t *symbols, uint32_t capacity, uint32_t *count, char *why) {
  (void)followed, (void)addresses, (void)x, (void)y, (void)z, (void)flags, (void)capacity, (void)why;
  __atomic_fetch_add(&vgt_compiled, 1, __ATOMIC_RELAXED);
  *out = (struct vgx_sim_compiled){.code = &kernels[kernel].code, .frame_nbytes = 100, .local_nbytes = 64};
  symbols[0] = 0;
  *count = 1;
  return 0;
}

static int32_t link_images(uint32_t device, const void *const *data, const uint64_t *nbytes, uint32_t count, void **out,
                           uint64_t *out_nbytes, char *why) {
  (void)device, (void)data, (void)nbytes, (void)count, (void)out, (void)out_nbytes, (void)why;
  return CUDA_ERROR_NOT_SUPPORTED;
}

static const struct vgx_sim_hooks hooks = {load_image,        unload_image,  kernel_name, describe_kernel,
                                           describe_variable, initial_bytes, compile,     link_images};

void vgt_install(void) { vgx_sim_set_hooks(&hooks); }

static char last_line[1024];
static void keep_line(const char *line) { strncpy(last_line, line, sizeof last_line - 1); }
void vgt_keep_log(void) { vgx_sim_set_log(keep_line, NULL); }
const char *vgt_last_log(void) { return last_line; }
