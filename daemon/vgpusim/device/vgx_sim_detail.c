/* An H200 computes the longer axis of the ellipse that the two gradients span with numbers of 10 bits: the greatest of
 * the two lengths and of 11/16 of their sum's and their difference's. A length is the greatest component and, added
 * first, 11/32 of the middle one and 1/4 of the least. Found by asking one for ramps of gradients; of random ones 4 in
 * 10,000 have a level that is 1 or 2 of 256 away. */
#include "vgx_sim_detail.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

enum { LEAST = 512, MOST = 1024, NBITS = 9 };

/* fraction * 2^exponent, the fraction from LEAST below MOST, or 0. */
struct number {
  int32_t fraction;
  int exponent;
  bool negative;
};

static struct number cut(int64_t fraction, int exponent, bool negative) {
  for (; fraction >= MOST; exponent++)
    fraction >>= 1;
  for (; fraction && fraction < LEAST; exponent--)
    fraction <<= 1;
  return (struct number){(int32_t)fraction, exponent, negative};
}

/* A gradient in texels. */
static struct number scaled(float gradient, uint32_t extent) {
  int exponent, log = 31 - __builtin_clz(extent);
  if (!(fabsf(gradient) >= 0x1p-126f))
    return (struct number){0};
  if (isinf(gradient))
    gradient = copysignf(0x1.fffffep127f, gradient);
  int64_t fraction = (int64_t)(frexpf(fabsf(gradient), &exponent) * MOST);
  int64_t product = ((fraction * extent << 3) + (7ll << log)) >> (log + 3);
  return cut(product, exponent - 10 + log, gradient < 0);
}

static bool greater(struct number a, struct number b) {
  if (!a.fraction || !b.fraction || a.exponent == b.exponent)
    return a.fraction > b.fraction;
  return a.exponent > b.exponent;
}

static struct number greatest(struct number a, struct number b) { return greater(a, b) ? a : b; }

static struct number sum(struct number a, struct number b) {
  if (greater(b, a))
    return sum(b, a);
  if (!b.fraction)
    return a;
  int distance = a.exponent - b.exponent;
  int64_t smaller = distance > 16 ? 0 : (int64_t)b.fraction << 1 >> distance;
  return cut((int64_t)a.fraction * 2 + (a.negative == b.negative ? smaller : -smaller), a.exponent - 1, a.negative);
}

static struct number part(struct number a, int shift) { return (struct number){a.fraction, a.exponent - shift, false}; }

static struct number eleven_16ths(struct number a) {
  return cut(((int64_t)a.fraction * 11 + 4) >> 3, a.exponent - 1, false);
}

static int descending(const void *a, const void *b) {
  struct number left = *(const struct number *)a, right = *(const struct number *)b;
  return greater(right, left) - greater(left, right);
}

/* 121/512 of a number: 11/32 of 11/16. */
static struct number share_of_middle(struct number a) {
  int64_t product = (int64_t)a.fraction * 121;
  int shift = product >= 1 << 16 ? 7 : 6;
  return cut((product + (1 << (shift - 2))) >> shift, a.exponent - 9 + shift, false);
}

/* Of a gradient; or 11/16 of it, of the gradients' sum or difference. */
static struct number length(const struct number *vector, int axes, bool diagonal) {
  struct number sorted[3];
  for (int a = 0; a < axes; a++)
    sorted[a] = part(vector[a], 0);
  qsort(sorted, (size_t)axes, sizeof *sorted, descending);
  struct number most = diagonal ? eleven_16ths(sorted[0]) : sorted[0], rest = {0};
  if (axes > 1)
    rest = diagonal ? share_of_middle(sorted[1]) : part(eleven_16ths(sorted[1]), 1);
  if (axes > 2)
    rest = sum(rest, part(diagonal ? eleven_16ths(sorted[2]) : sorted[2], 2));
  return sum(most, rest);
}

/* 256 log2(1 + (i + 1/2) / 256), as the card's table has it. */
static int logarithm(int i) { return i == 0 ? 0 : i == 255 ? 255 : (int)(256 * log2(1 + (i + 0.5) / 256) + 0.47); }

int64_t vgx_sim_detail_level(const float gradient[2][3], const uint32_t *extent, int axes) {
  struct number along[2][3], both[2][3];
  for (int a = 0; a < axes; a++) {
    for (int d = 0; d < 2; d++)
      along[d][a] = scaled(gradient[d][a], extent[a]);
    struct number second = along[1][a];
    both[0][a] = sum(along[0][a], second);
    second.negative = !second.negative;
    both[1][a] = sum(along[0][a], second);
  }
  struct number longest = greatest(greatest(length(along[0], axes, false), length(along[1], axes, false)),
                                   greatest(length(both[0], axes, true), length(both[1], axes, true)));
  if (!longest.fraction)
    return INT32_MIN;
  return (int64_t)(longest.exponent + NBITS) * 256 + logarithm((longest.fraction - LEAST) >> 1);
}
