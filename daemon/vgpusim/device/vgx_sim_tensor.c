/* Tensor maps and the copies they describe: boxes of a tensor of up to five dimensions, dense in shared memory, in the
 * order of the tensor's dimensions; what lies outside the tensor is zero there, and is not written back.
 *
 * The map is opaque to programs; struct map is what it is here. */
#include "vgx_sim_tensor.h"

#include <stddef.h>
#include <string.h>

#include "vgx_sim_internal.h"
#include "vgx_sim_reach.h"

enum { RANK_MAX = 5, BOX_MAX = 256, ELEMENT_STRIDE_MAX = 8, MAP_MAGIC = 0x50414d54 };
enum { INTERLEAVE_NONE, SWIZZLE_NONE = 0, SWIZZLE_128B = 3, FILL_ZERO = 0 };
enum { REDUCE_NONE, REDUCE_ADD, REDUCE_MIN, REDUCE_MAX, REDUCE_INC, REDUCE_DEC, REDUCE_AND, REDUCE_OR, REDUCE_XOR };
enum { ROW_COORDINATES = 1, ROW_SHARED = 6, LANES = 32 };
#define STRIDE_MAX (1ull << 40)
#define BOX_NBYTES_MAX (1ull << 18) /* more than shared memory holds */
#define DIMENSION_MAX (1ull << 32)

enum type {
  U8,
  U16,
  U32,
  S32,
  U64,
  S64,
  F16,
  F32,
  F64,
  BF16,
  TYPE_COUNT
}; /* CUtensorMapDataType; later types convert data and are not supported */
static const uint8_t nbytes_of[TYPE_COUNT] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2};

struct map {
  uint32_t magic;
  uint8_t type, rank, swizzle, reserved;
  uint64_t address;
  uint64_t strides[RANK_MAX - 1]; /* bytes; the first dimension is dense */
  uint32_t last[RANK_MAX];        /* last index of each dimension */
  uint32_t box[RANK_MAX], step[RANK_MAX];
};

_Static_assert(sizeof(struct map) <= sizeof(CUtensorMap), "a map is 128 bytes");
/* Kernels change maps: codegen/emit_tensor_map.py. */
_Static_assert(offsetof(struct map, type) == 4 && offsetof(struct map, rank) == 5 &&
                   offsetof(struct map, swizzle) == 6 && offsetof(struct map, reserved) == 7 &&
                   offsetof(struct map, address) == 8 && offsetof(struct map, strides) == 16 &&
                   offsetof(struct map, last) == 48 && offsetof(struct map, box) == 68 &&
                   offsetof(struct map, step) == 88,
               "where tensormap.replace writes");

/* A kernel can give any 128 bytes as a map: whatever passes here is safe to follow within the reachable range. */
static bool is_valid(const struct map *m) {
  bool valid = m->magic == MAP_MAGIC && m->type < TYPE_COUNT && m->rank >= 1 && m->rank <= RANK_MAX &&
               m->swizzle <= SWIZZLE_128B && m->reserved == 0;
  uint64_t nbytes = valid ? nbytes_of[m->type] : 0;
  for (uint32_t i = 0; valid && i < m->rank; i++) {
    valid = m->box[i] >= 1 && m->box[i] <= BOX_MAX && m->step[i] >= 1 && m->step[i] <= ELEMENT_STRIDE_MAX;
    nbytes *= m->box[i];
    valid &= nbytes <= BOX_NBYTES_MAX && (i == 0 || m->strides[i - 1] < STRIDE_MAX);
  }
  return valid;
}

CUresult vgx_sim_cuTensorMapEncodeTiled(CUtensorMap *tensorMap, int tensorDataType, unsigned int tensorRank,
                                        void *globalAddress, const uint64_t *globalDim, const uint64_t *globalStrides,
                                        const uint32_t *boxDim, const uint32_t *elementStrides, int interleave,
                                        int swizzle, int l2Promotion, int oobFill) {
  if (!tensorMap || !globalDim || !boxDim || !elementStrides || tensorRank < 1 || tensorRank > RANK_MAX ||
      (tensorRank > 1 && !globalStrides) || (uintptr_t)globalAddress % 16 || tensorDataType < 0 || swizzle < 0 ||
      interleave < 0 || l2Promotion < 0 || l2Promotion > 3 || oobFill < 0 || oobFill > 1)
    return CUDA_ERROR_INVALID_VALUE;
  /* Not supported: types that convert, swizzles of larger atoms, interleaved layouts, NaN beyond the edge. */
  if (tensorDataType >= TYPE_COUNT || swizzle > SWIZZLE_128B || interleave != INTERLEAVE_NONE || oobFill != FILL_ZERO)
    return CUDA_ERROR_NOT_SUPPORTED;
  struct map m = {.magic = MAP_MAGIC,
                  .type = (uint8_t)tensorDataType,
                  .rank = (uint8_t)tensorRank,
                  .swizzle = (uint8_t)swizzle,
                  .address = (uintptr_t)globalAddress};
  for (unsigned i = 0; i < tensorRank; i++) {
    if (globalDim[i] == 0 || globalDim[i] > DIMENSION_MAX || boxDim[i] == 0 || boxDim[i] > BOX_MAX ||
        elementStrides[i] == 0 || elementStrides[i] > ELEMENT_STRIDE_MAX)
      return CUDA_ERROR_INVALID_VALUE;
    m.last[i] = (uint32_t)(globalDim[i] - 1);
    m.box[i] = boxDim[i];
    m.step[i] = i == 0 ? 1 : elementStrides[i]; /* without interleaving the first stride is not used */
    if (i + 1 < tensorRank) {
      if (globalStrides[i] % 16 || globalStrides[i] >= STRIDE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
      m.strides[i] = globalStrides[i];
    }
  }
  uint32_t row = boxDim[0] * nbytes_of[m.type];
  if (row % 16 || (swizzle != SWIZZLE_NONE && row > 16u << swizzle))
    return CUDA_ERROR_INVALID_VALUE;
  memset(tensorMap, 0, sizeof *tensorMap);
  memcpy(tensorMap, &m, sizeof m);
  return CUDA_SUCCESS;
}

CUresult vgx_sim_cuTensorMapEncodeIm2col(CUtensorMap *tensorMap, int tensorDataType, unsigned int tensorRank,
                                         void *globalAddress, const uint64_t *globalDim, const uint64_t *globalStrides,
                                         const int *pixelBoxLowerCorner, const int *pixelBoxUpperCorner,
                                         unsigned int channelsPerPixel, unsigned int pixelsPerColumn,
                                         const uint32_t *elementStrides, int interleave, int swizzle, int l2Promotion,
                                         int oobFill) {
  (void)tensorMap, (void)tensorDataType, (void)tensorRank, (void)globalAddress, (void)globalDim, (void)globalStrides;
  (void)pixelBoxLowerCorner, (void)pixelBoxUpperCorner, (void)channelsPerPixel, (void)pixelsPerColumn;
  (void)elementStrides, (void)interleave, (void)swizzle, (void)l2Promotion, (void)oobFill;
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult vgx_sim_cuTensorMapReplaceAddress(CUtensorMap *tensorMap, void *globalAddress) {
  struct map m;
  if (!tensorMap || (uintptr_t)globalAddress % 16)
    return CUDA_ERROR_INVALID_VALUE;
  memcpy(&m, tensorMap, sizeof m);
  if (!is_valid(&m))
    return CUDA_ERROR_INVALID_VALUE;
  m.address = (uintptr_t)globalAddress;
  memcpy(tensorMap, &m, sizeof m);
  return CUDA_SUCCESS;
}

/* XOR bits 4.. of a shared address with bits 7..: as many bits as number the 16-byte pieces of a row. */
static uint64_t swizzled(uint64_t address, uint32_t swizzle) {
  uint64_t pieces = swizzle == SWIZZLE_NONE ? 0 : (1u << swizzle) - 1;
  return address ^ (address >> 7 & pieces) << 4;
}

#define REDUCE_INTEGER(type)                                                                                           \
  static void reduce_##type(type *to, type value, uint32_t operation) {                                                \
    type old = __atomic_load_n(to, __ATOMIC_RELAXED), fresh;                                                           \
    do                                                                                                                 \
      fresh = operation == REDUCE_ADD   ? (type)((uint64_t)old + (uint64_t)value)                                      \
              : operation == REDUCE_MIN ? (old < value ? old : value)                                                  \
              : operation == REDUCE_MAX ? (old > value ? old : value)                                                  \
              : operation == REDUCE_AND ? (old & value)                                                                \
              : operation == REDUCE_OR  ? (old | value)                                                                \
                                        : (old ^ value);                                                               \
    while (!__atomic_compare_exchange_n(to, &old, fresh, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));                   \
  }

REDUCE_INTEGER(uint32_t)
REDUCE_INTEGER(int32_t)
REDUCE_INTEGER(uint64_t)
REDUCE_INTEGER(int64_t)

static void add_float(uint32_t *to, float value) {
  uint32_t old = __atomic_load_n(to, __ATOMIC_RELAXED), fresh;
  do {
    float sum;
    memcpy(&sum, &old, sizeof sum);
    sum += value;
    memcpy(&fresh, &sum, sizeof fresh);
  } while (!__atomic_compare_exchange_n(to, &old, fresh, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
}

static bool is_reducible(uint32_t type, uint32_t operation) {
  if (type == F32)
    return operation == REDUCE_ADD;
  return type >= U32 && type <= S64 && operation != REDUCE_INC && operation != REDUCE_DEC;
}

static void reduce(void *to, const void *from, uint32_t type, uint32_t operation) {
  uint64_t value = 0;
  memcpy(&value, from, nbytes_of[type]);
  float number;
  memcpy(&number, from, sizeof number);
  if (type == F32)
    add_float(to, number);
  else if (type == U32)
    reduce_uint32_t(to, (uint32_t)value, operation);
  else if (type == S32)
    reduce_int32_t(to, (int32_t)value, operation);
  else if (type == U64)
    reduce_uint64_t(to, value, operation);
  else
    reduce_int64_t(to, (int64_t)value, operation);
}

/* Copy one box, row by row of the first dimension. Returns the bytes of the box; 0: it is outside the reachable range.
 */
static uint64_t copy_box(const struct map *m, const int32_t *start, uint64_t shared, bool writes, uint32_t operation) {
  uint32_t element = nbytes_of[m->type], counts[RANK_MAX] = {1, 1, 1, 1, 1}, at[RANK_MAX] = {0};
  uint64_t rows = 1, row_nbytes = (uint64_t)m->box[0] * element;
  for (uint32_t i = 0; i < m->rank; i++)
    counts[i] = (m->box[i] + m->step[i] - 1) / m->step[i];
  for (uint32_t i = 1; i < m->rank; i++)
    rows *= counts[i];
  for (uint64_t row = 0; row < rows; row++) {
    bool inside = true;
    uint64_t global = m->address;
    for (uint32_t i = 1; i < m->rank; i++) {
      int64_t place = (int64_t)start[i] + (int64_t)at[i] * m->step[i];
      inside &= place >= 0 && place <= (int64_t)m->last[i];
      global += (uint64_t)place * m->strides[i - 1];
    }
    int64_t first = start[0] < 0 ? 0 : start[0], last = (int64_t)start[0] + m->box[0] - 1;
    last = last > (int64_t)m->last[0] ? (int64_t)m->last[0] : last;
    if (inside && first <= last &&
        !(vgx_sim_is_reachable(global + (uint64_t)first * element) &&
          vgx_sim_is_reachable(global + (uint64_t)last * element + element - 1)))
      return 0;
    for (uint32_t x = 0; x < m->box[0]; x++) {
      int64_t place = (int64_t)start[0] + x;
      void *here = (void *)swizzled(shared + row * row_nbytes + (uint64_t)x * element, m->swizzle);
      void *there = (void *)(global + (uint64_t)place * element);
      bool in = inside && place >= 0 && place <= (int64_t)m->last[0];
      if (!writes && in)
        memcpy(here, there, element);
      else if (!writes)
        memset(here, 0, element);
      else if (in && operation)
        reduce(there, here, m->type, operation);
      else if (in)
        memcpy(there, here, element);
    }
    for (uint32_t i = 1; i < m->rank && ++at[i] == counts[i]; i++)
      at[i] = 0;
  }
  return rows * row_nbytes;
}

/* Where a box may begin in its row, as an H200 has it (driver 580.159.04; maps that are not interleaved). */
static const char unaligned[] =
    "a tensor copy whose first coordinate, in bytes, is not a multiple of 16: an illegal instruction";
static const char before_row[] =
    "a tensor copy to memory whose first coordinate is negative: an illegal instruction, though loads may begin so";

bool vgx_sim_tensor_is_illegal(const char *wrong) { return wrong == unaligned || wrong == before_row; }

const char *vgx_sim_tensor_copy(uint64_t form, uint32_t mask, const uint64_t *in, uint64_t *out) {
  uint32_t rank = form & 15, operation = form >> 13 & 15;
  bool writes = form >> 12 & 1;
  for (; mask; mask &= mask - 1) {
    uint32_t lane = (uint32_t)__builtin_ctz(mask);
    struct map m;
    memcpy(&m, (const void *)in[lane], sizeof m);
    if (!is_valid(&m) || m.rank != rank)
      return "a tensor copy with something else than a tensor map of its rank, or of too large a box";
    if (operation && !is_reducible(m.type, operation))
      return "a reduction of a tensor that is not supported for its type";
    int32_t start[RANK_MAX] = {0};
    for (uint32_t i = 0; i < rank; i++)
      start[i] = (int32_t)in[(ROW_COORDINATES + i) * LANES + lane];
    if ((int64_t)start[0] * nbytes_of[m.type] % 16)
      return unaligned;
    if (writes && start[0] < 0)
      return before_row;
    out[lane] = copy_box(&m, start, in[ROW_SHARED * LANES + lane], writes, operation);
    if (out[lane] == 0)
      return "a tensor copy of memory that no kernel can reach";
  }
  return NULL;
}
