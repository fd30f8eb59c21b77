#include "vgx_page.h"

#include <pthread.h>
#include <string.h>

enum { LANES = 4 };

static struct vgx_page unknown(void) { return (struct vgx_page){{UINT64_MAX, UINT64_MAX}}; }

static bool is_same(struct vgx_page a, struct vgx_page b) { return !memcmp(&a, &b, sizeof a); }

static uint64_t folded(uint64_t value, uint64_t factor) {
  unsigned __int128 product = (unsigned __int128)value * factor;
  return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* 128 bits: that two contents which follow each other have the same digest by chance need not be expected. */
static struct vgx_page digest(const void *page) {
  static const uint64_t factors[LANES] = {0x9e3779b97f4a7c15, 0xc2b2ae3d27d4eb4f, 0xd6e8feb86659fd93,
                                          0xa0761d6478bd642f};
  uint64_t lanes[LANES], sums[LANES] = {0}, words[LANES];
  memcpy(lanes, factors, sizeof lanes);
  for (unsigned at = 0; at < VGX_PAGE_NBYTES; at += sizeof words) {
    memcpy(words, (const char *)page + at, sizeof words);
    for (unsigned i = 0; i < LANES; i++) {
      lanes[i] = folded(lanes[i] ^ words[i], factors[i]) + words[i];
      sums[i] += lanes[i];
    }
  }
  struct vgx_page made = {{0}};
  for (unsigned i = 0; i < LANES; i++) {
    made.words[0] = folded(made.words[0] ^ lanes[i], factors[i]) + lanes[i];
    made.words[1] = folded(made.words[1] ^ sums[i], factors[i]) + sums[i];
  }
  return made;
}

static struct vgx_page digest_of_zeros;

static void set_digest_of_zeros(void) { digest_of_zeros = digest((const char[VGX_PAGE_NBYTES]){0}); }

static struct vgx_page page_of(const void *page) {
  struct vgx_page made = digest(page);
  for (unsigned i = 0; i < 2; i++)
    made.words[i] ^= digest_of_zeros.words[i];
  return made;
}

void vgx_page_init(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, set_digest_of_zeros);
}

bool vgx_page_is(const struct vgx_page *page, const void *contents) { return is_same(page_of(contents), *page); }

void vgx_page_set(struct vgx_page *page, const void *contents) { *page = page_of(contents); }

void vgx_pages_written(struct vgx_page *pages, uint64_t offset, uint64_t nbytes) {
  for (uint64_t i = offset / VGX_PAGE_NBYTES; nbytes && i * VGX_PAGE_NBYTES < offset + nbytes; i++)
    pages[i] = unknown();
}
