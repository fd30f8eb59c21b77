/* Sizes and inputs for rodinia.cu and rodinia.c: the six programs of the Rodinia suite that are cited most, without the
 * suite's code. */
#include <stdint.h>

#define NN_RECORDS (1 << 21)
#define HOTSPOT_SIDE 1024
#define HOTSPOT_STEPS 8
#define SRAD_SIDE 1024
#define SRAD_STEPS 2
#define BFS_NODES (1 << 18)
#define BFS_DEGREE 6
#define KMEANS_POINTS (1 << 16)
#define KMEANS_FEATURES 34
#define KMEANS_CLUSTERS 5
#define LUD_SIDE 512
#define LUD_TILE 16
#define ROUNDS 7

/* A pseudo-random number in [0, 1), the same at each call with one index. */
static inline float sample(uint32_t index) {
  uint32_t x = index * 2654435761u + 12345u;
  x ^= x >> 15;
  x *= 2246822519u;
  x ^= x >> 13;
  return (float)(x >> 8) * (1.0f / 16777216.0f);
}

static inline uint32_t neighbour(uint32_t node, uint32_t edge) {
  return (uint32_t)((double)sample(node * BFS_DEGREE + edge) * BFS_NODES);
}
