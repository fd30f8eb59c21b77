#include "vgs_digest.h"
#include <stdbool.h>
#include <string.h>
#if defined __x86_64__ && !defined VGS_DIGEST_PLAIN /* a test defines VGS_DIGEST_PLAIN */
#include <cpuid.h>
#endif

enum {
  LANES = VGS_DIGEST_LANES,
  LEAF_NBYTES = VGS_DIGEST_LEAF_NBYTES,
  BLOCK_NBYTES = 128,
  GROUP_NBYTES = LANES * LEAF_NBYTES,
  TREE_DEPTH = 2
};

/* One word of four compressions. */
typedef uint64_t lanes __attribute__((vector_size(8 * LANES)));

static const uint64_t initial[8] = {0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
                                    0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179};

static const uint8_t sigma[10][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
};

/* The initial chain values of a node; `depth` 0: leaf number `offset`. */
static uint64_t parameter(int word, uint64_t offset, uint64_t depth) {
  uint64_t words[3] = {VGS_DIGEST_NBYTES | (uint64_t)TREE_DEPTH << 24 | (uint64_t)LEAF_NBYTES << 32, offset,
                       depth | VGS_DIGEST_NBYTES << 8};
  return initial[word] ^ (word < 3 ? words[word] : 0);
}

#define ROTATE(x, n) ((x) >> (n) | (x) << (64 - (n)))
#define MIX(a, b, c, d, x, y)                                                                                          \
  do {                                                                                                                 \
    v[a] += v[b] + (x);                                                                                                \
    v[d] = ROTATE(v[d] ^ v[a], 32);                                                                                    \
    v[c] += v[d];                                                                                                      \
    v[b] = ROTATE(v[b] ^ v[c], 24);                                                                                    \
    v[a] += v[b] + (y);                                                                                                \
    v[d] = ROTATE(v[d] ^ v[a], 16);                                                                                    \
    v[c] += v[d];                                                                                                      \
    v[b] = ROTATE(v[b] ^ v[c], 63);                                                                                    \
  } while (0)

/* RFC 7693, 3.2, in every lane: compress the block at `block[lane]`; `done`: bytes so far, this block included. Inlined
 * into a copy for each instruction set. */
static inline __attribute__((always_inline)) void compress(lanes h[8], const uint8_t *const block[LANES], uint64_t done,
                                                           bool last_block, const bool last_node[LANES]) {
  lanes v[16], m[16];
  for (int i = 0; i < 16; i++)
    for (int lane = 0; lane < LANES; lane++) {
      uint64_t word;
      memcpy(&word, block[lane] + 8 * i, 8);
      m[i][lane] = word;
    }
  for (int i = 0; i < 8; i++) {
    v[i] = h[i];
    v[i + 8] = initial[i] ^ (lanes) { 0 };
  }
  v[12] ^= done;
  if (last_block) {
    v[14] = ~v[14];
    for (int lane = 0; lane < LANES; lane++)
      v[15][lane] ^= last_node[lane] ? UINT64_MAX : 0;
  }
  for (int round = 0; round < 12; round++) {
    const uint8_t *s = sigma[round % 10];
    MIX(0, 4, 8, 12, m[s[0]], m[s[1]]);
    MIX(1, 5, 9, 13, m[s[2]], m[s[3]]);
    MIX(2, 6, 10, 14, m[s[4]], m[s[5]]);
    MIX(3, 7, 11, 15, m[s[6]], m[s[7]]);
    MIX(0, 5, 10, 15, m[s[8]], m[s[9]]);
    MIX(1, 6, 11, 12, m[s[10]], m[s[11]]);
    MIX(2, 7, 8, 13, m[s[12]], m[s[13]]);
    MIX(3, 4, 9, 14, m[s[14]], m[s[15]]);
  }
  for (int i = 0; i < 8; i++)
    h[i] ^= v[i] ^ v[i + 8];
}

/* Four leaves of `nbytes` each (at least 1 unless the image is empty), numbered from `first`. */
static inline __attribute__((always_inline)) void leaves_inline(const uint8_t *const leaf[LANES], uint64_t nbytes,
                                                                uint64_t first, const bool last[LANES],
                                                                uint8_t out[LANES][VGS_DIGEST_NBYTES]) {
  lanes h[8];
  for (int i = 0; i < 8; i++)
    for (int lane = 0; lane < LANES; lane++)
      h[i][lane] = parameter(i, first + (uint64_t)lane, 0);
  uint64_t done = 0;
  const uint8_t *at[LANES];
  for (; nbytes - done > BLOCK_NBYTES; done += BLOCK_NBYTES) {
    for (int lane = 0; lane < LANES; lane++)
      at[lane] = leaf[lane] + done;
    compress(h, at, done + BLOCK_NBYTES, false, last);
  }
  uint8_t block[LANES][BLOCK_NBYTES] = {{0}};
  for (int lane = 0; lane < LANES; lane++) {
    if (nbytes > done)
      memcpy(block[lane], leaf[lane] + done, nbytes - done);
    at[lane] = block[lane];
  }
  compress(h, at, nbytes, true, last);
  for (int lane = 0; lane < LANES; lane++)
    for (int i = 0; i < VGS_DIGEST_NBYTES / 8; i++) {
      uint64_t word = h[i][lane];
      memcpy(&out[lane][8 * i], &word, 8);
    }
}

static void leaves_anywhere(const uint8_t *const leaf[LANES], uint64_t nbytes, uint64_t first, const bool last[LANES],
                            uint8_t out[LANES][VGS_DIGEST_NBYTES]) {
  leaves_inline(leaf, nbytes, first, last, out);
}

#if defined __x86_64__ && !defined VGS_DIGEST_PLAIN
__attribute__((target("avx2"))) static void leaves_avx2(const uint8_t *const leaf[LANES], uint64_t nbytes,
                                                        uint64_t first, const bool last[LANES],
                                                        uint8_t out[LANES][VGS_DIGEST_NBYTES]) {
  leaves_inline(leaf, nbytes, first, last, out);
}

/* The compiler's builtin for this needs a constructor in the library, which this library must not have. */
static bool has_avx2(void) {
  unsigned a, b, c, d;
  uint32_t low, high;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE))
    return false;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & 6) == 6 && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_AVX2);
}
#endif

static void leaves(const uint8_t *const leaf[LANES], uint64_t nbytes, uint64_t first, const bool last[LANES],
                   uint8_t out[LANES][VGS_DIGEST_NBYTES]) {
#if defined __x86_64__ && !defined VGS_DIGEST_PLAIN
  static int answer; /* atomic; 0 not asked, 1 no, 2 yes */
  int known = __atomic_load_n(&answer, __ATOMIC_RELAXED);
  if (!known) {
    known = has_avx2() ? 2 : 1;
    __atomic_store_n(&answer, known, __ATOMIC_RELAXED);
  }
  if (known == 2) {
    leaves_avx2(leaf, nbytes, first, last, out);
    return;
  }
#endif
  leaves_anywhere(leaf, nbytes, first, last, out);
}

static void root_compress(struct vgs_digest *digest, bool last) {
  lanes h[8];
  const uint8_t *block[LANES] = {digest->root_block, digest->root_block, digest->root_block, digest->root_block};
  const bool last_node[LANES] = {last, last, last, last};
  for (int i = 0; i < 8; i++)
    h[i] = digest->root[i] ^ (lanes) { 0 };
  digest->root_nbytes += digest->root_used;
  memset(digest->root_block + digest->root_used, 0, sizeof digest->root_block - digest->root_used);
  compress(h, block, digest->root_nbytes, last, last_node);
  for (int i = 0; i < 8; i++)
    digest->root[i] = h[i][0];
  digest->root_used = 0;
}

static void root_add(struct vgs_digest *digest, const uint8_t leaf[VGS_DIGEST_NBYTES]) {
  if (digest->root_used == sizeof digest->root_block) /* compressed late: the last block carries a flag */
    root_compress(digest, false);
  memcpy(digest->root_block + digest->root_used, leaf, VGS_DIGEST_NBYTES);
  digest->root_used += VGS_DIGEST_NBYTES;
  digest->leaf_count++;
}

/* Four whole leaves, none of which is the last. */
static void add_group(struct vgs_digest *digest, const uint8_t *data) {
  uint8_t out[LANES][VGS_DIGEST_NBYTES];
  const uint8_t *leaf[LANES];
  const bool last[LANES] = {false};
  for (int lane = 0; lane < LANES; lane++)
    leaf[lane] = data + lane * LEAF_NBYTES;
  leaves(leaf, LEAF_NBYTES, digest->leaf_count, last, out);
  for (int lane = 0; lane < LANES; lane++)
    root_add(digest, out[lane]);
}

void vgs_digest_init(struct vgs_digest *digest) {
  digest->leaf_count = digest->root_nbytes = 0;
  digest->root_used = digest->used = 0;
  for (int i = 0; i < 8; i++)
    digest->root[i] = parameter(i, 0, 1);
}

void vgs_digest_add(struct vgs_digest *digest, const void *data, uint64_t nbytes) {
  const uint8_t *bytes = data;
  while (nbytes) {
    if (digest->used == GROUP_NBYTES) { /* full, and not the last group */
      add_group(digest, digest->held);
      digest->used = 0;
    }
    while (digest->used == 0 && nbytes > GROUP_NBYTES) {
      add_group(digest, bytes);
      bytes += GROUP_NBYTES;
      nbytes -= GROUP_NBYTES;
    }
    uint64_t room = GROUP_NBYTES - digest->used, part = nbytes < room ? nbytes : room;
    memcpy(digest->held + digest->used, bytes, part);
    digest->used += (uint32_t)part;
    bytes += part;
    nbytes -= part;
  }
}

/* The remaining leaves, 1 to 4, one at a time: all lanes compute the same leaf. */
void vgs_digest_finish(struct vgs_digest *digest, uint8_t out[VGS_DIGEST_NBYTES]) {
  for (uint32_t done = 0, part; done == 0 || done < digest->used; done += part) {
    part = digest->used - done < LEAF_NBYTES ? digest->used - done : LEAF_NBYTES;
    const uint8_t *at = digest->held + done;
    const uint8_t *leaf[LANES] = {at, at, at, at};
    bool is_last = done + part == digest->used;
    const bool last[LANES] = {is_last, is_last, is_last, is_last};
    uint8_t all[LANES][VGS_DIGEST_NBYTES];
    leaves(leaf, part, digest->leaf_count, last, all);
    root_add(digest, all[0]); /* lane 0 has this leaf's number */
    if (!part)
      break;
  }
  root_compress(digest, true);
  memcpy(out, digest->root, VGS_DIGEST_NBYTES);
}
