/* Copying to memory that a device reads next. */
#ifndef VGS_COPY_PAST_CACHE_H
#define VGS_COPY_PAST_CACHE_H

#include "vgs_session.h"
#include <stdint.h>
#include <string.h>

#ifdef __x86_64__
#include <emmintrin.h>
#endif

enum { LINE_NBYTES = 64 };

/* `to` is aligned to a cache line. A card reads what lies in memory sooner than what is modified in a processor's
 * cache: 1 MB takes 26 us, else 46 (H200, docs/real-gpu.md). The simulator is a processor and reads from the cache. */
static inline void vgs_copy_past_cache(void *to, const void *from, uint64_t nbytes) {
#ifdef __x86_64__
  if (!vgs_inventory()->simulated) {
    __m128i *line = to;
    const __m128i *source = from;
    for (; nbytes >= LINE_NBYTES; nbytes -= LINE_NBYTES, line += 4, source += 4) {
      __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1), c = _mm_loadu_si128(source + 2),
              d = _mm_loadu_si128(source + 3);
      _mm_stream_si128(line, a);
      _mm_stream_si128(line + 1, b);
      _mm_stream_si128(line + 2, c);
      _mm_stream_si128(line + 3, d);
    }
    _mm_sfence(); /* before the record that has the device read it */
    to = line;
    from = source;
  }
#endif
  memcpy(to, from, nbytes);
}

#endif
