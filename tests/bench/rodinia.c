/* The reference for rodinia.cu: the same work in C with OpenMP. Prints a line for each kernel: name, best time, time of
 * the first run, and a sum of the results. */
#include "rodinia.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void measure(const char *name, void (*reset)(void), void (*run)(void), double (*sum)(void)) {
  double first_s = 0, best_s = 1e9;
  for (int round = 0; round <= ROUNDS; round++) {
    if (reset)
      reset();
    double start_s = now_s();
    run();
    double elapsed_s = now_s() - start_s;
    if (round == 0)
      first_s = elapsed_s;
    else if (elapsed_s < best_s)
      best_s = elapsed_s;
  }
  printf("%s %.9f %.9f %.6g\n", name, best_s, first_s, sum());
}

static void *reserve(size_t nbytes) {
  void *p = aligned_alloc(64, nbytes);
  if (!p)
    exit(1);
  return p;
}

static double total(const float *values, size_t count) {
  double sum = 0;
  for (size_t i = 0; i < count; i++)
    sum += (double)values[i];
  return sum;
}

static float *latitude, *longitude, *distance;

static void nn(void) {
#pragma omp parallel for simd
  for (int i = 0; i < NN_RECORDS; i++) {
    float dx = latitude[i] - 30.0f, dy = longitude[i] - 90.0f;
    distance[i] = sqrtf(dx * dx + dy * dy);
  }
}

static double nn_sum(void) { return total(distance, NN_RECORDS); }

static float *heat[2], *power, *start;

static void hotspot_reset(void) { memcpy(heat[0], start, sizeof(float) * HOTSPOT_SIDE * HOTSPOT_SIDE); }

static void hotspot(void) {
  enum { n = HOTSPOT_SIDE };
  for (int step = 0; step < HOTSPOT_STEPS; step++) {
    const float *in = heat[step & 1];
    float *out = heat[~step & 1];
#pragma omp parallel for
    for (int y = 0; y < n; y++) {
      const float *row = in + y * n, *above = in + (y ? y - 1 : 0) * n, *below = in + (y < n - 1 ? y + 1 : y) * n;
      for (int x = 0; x < n; x++) {
        float centre = row[x], west = row[x ? x - 1 : 0], east = row[x < n - 1 ? x + 1 : x];
        out[y * n + x] = centre + 0.1f * (power[y * n + x] + (above[x] + below[x] - 2 * centre) * 0.5f +
                                          (west + east - 2 * centre) * 0.5f + (80.0f - centre) * 0.01f);
      }
    }
  }
}

static double hotspot_sum(void) { return total(heat[HOTSPOT_STEPS & 1], (size_t)HOTSPOT_SIDE * HOTSPOT_SIDE); }

static float *image, *picture, *coefficient, *gradient[4];

static void srad_reset(void) { memcpy(image, picture, sizeof(float) * SRAD_SIDE * SRAD_SIDE); }

static void srad(void) {
  enum { n = SRAD_SIDE };
  for (int step = 0; step < SRAD_STEPS; step++) {
    float sum = 0, squares = 0;
#pragma omp parallel for simd reduction(+ : sum, squares)
    for (int i = 0; i < n * n; i++) {
      sum += image[i];
      squares += image[i] * image[i];
    }
    float mean = sum / (n * n), q0 = (squares / (n * n) - mean * mean) / (mean * mean);
#pragma omp parallel for
    for (int y = 0; y < n; y++)
      for (int x = 0; x < n; x++) {
        int i = y * n + x;
        float c = image[i];
        float north = image[(y ? y - 1 : 0) * n + x] - c, south = image[(y < n - 1 ? y + 1 : y) * n + x] - c;
        float west = image[y * n + (x ? x - 1 : 0)] - c, east = image[y * n + (x < n - 1 ? x + 1 : x)] - c;
        float g = (north * north + south * south + west * west + east * east) / (c * c);
        float l = (north + south + west + east) / c;
        float numerator = 0.5f * g - 0.0625f * l * l, root = 1 + 0.25f * l;
        float q = numerator / (root * root);
        float value = 1.0f / (1.0f + (q - q0) / (q0 * (1 + q0)));
        gradient[0][i] = north, gradient[1][i] = south, gradient[2][i] = west, gradient[3][i] = east;
        coefficient[i] = value < 0 ? 0 : value > 1 ? 1 : value;
      }
#pragma omp parallel for
    for (int y = 0; y < n; y++)
      for (int x = 0; x < n; x++) {
        int i = y * n + x;
        float own = coefficient[i];
        float south = coefficient[(y < n - 1 ? y + 1 : y) * n + x], east = coefficient[y * n + (x < n - 1 ? x + 1 : x)];
        float divergence = own * gradient[0][i] + south * gradient[1][i] + own * gradient[2][i] + east * gradient[3][i];
        image[i] += 0.125f * divergence;
      }
  }
}

static double srad_sum(void) { return total(image, (size_t)SRAD_SIDE * SRAD_SIDE); }

static int *edges, *cost;
static unsigned char *frontier, *updating;

static void bfs(void) {
  memset(frontier, 0, BFS_NODES);
  memset(updating, 0, BFS_NODES);
#pragma omp parallel for
  for (int i = 0; i < BFS_NODES; i++)
    cost[i] = -1;
  frontier[0] = 1, cost[0] = 0;
  for (int level = 0, more = 1; more; level++) {
#pragma omp parallel for
    for (int node = 0; node < BFS_NODES; node++)
      if (frontier[node]) {
        frontier[node] = 0;
        for (int edge = 0; edge < BFS_DEGREE; edge++) {
          int to = edges[node * BFS_DEGREE + edge];
          if (cost[to] < 0) {
            cost[to] = level + 1;
            updating[to] = 1;
          }
        }
      }
    more = 0;
#pragma omp parallel for reduction(| : more)
    for (int node = 0; node < BFS_NODES; node++)
      if (updating[node]) {
        frontier[node] = 1;
        updating[node] = 0;
        more |= 1;
      }
  }
}

static double bfs_sum(void) {
  double sum = 0;
  for (int i = 0; i < BFS_NODES; i++)
    sum += cost[i];
  return sum;
}

static float *features, *centres; /* features[feature * KMEANS_POINTS + point] */
static int *membership, *sizes;

static void kmeans(void) {
  memset(sizes, 0, sizeof(int) * KMEANS_CLUSTERS);
  int counted[KMEANS_CLUSTERS] = {0};
#pragma omp parallel for reduction(+ : counted)
  for (int point = 0; point < KMEANS_POINTS; point++) {
    float least = 1e30f;
    int nearest = 0;
    for (int cluster = 0; cluster < KMEANS_CLUSTERS; cluster++) {
      float sum = 0;
      for (int feature = 0; feature < KMEANS_FEATURES; feature++) {
        float d = features[feature * KMEANS_POINTS + point] - centres[cluster * KMEANS_FEATURES + feature];
        sum += d * d;
      }
      if (sum < least)
        least = sum, nearest = cluster;
    }
    membership[point] = nearest;
    counted[nearest]++;
  }
  memcpy(sizes, counted, sizeof counted);
}

static double kmeans_sum(void) {
  double sum = 0;
  for (int cluster = 0; cluster < KMEANS_CLUSTERS; cluster++)
    sum += (double)sizes[cluster] * (cluster + 1);
  return sum;
}

static float *matrix, *original;

static void lud_reset(void) { memcpy(matrix, original, sizeof(float) * LUD_SIDE * LUD_SIDE); }

static void lud(void) {
  enum { n = LUD_SIDE, tile = LUD_TILE };
  for (int at = 0; at < n; at += tile) {
    for (int k = at; k < at + tile; k++)
      for (int y = k + 1; y < at + tile; y++) {
        float factor = matrix[y * n + k] /= matrix[k * n + k];
        for (int x = k + 1; x < at + tile; x++)
          matrix[y * n + x] -= factor * matrix[k * n + x];
      }
#pragma omp parallel for
    for (int other = at + tile; other < n; other += tile) {
      for (int k = at; k < at + tile; k++)
        for (int y = k + 1; y < at + tile; y++)
          for (int x = other; x < other + tile; x++)
            matrix[y * n + x] -= matrix[y * n + k] * matrix[k * n + x];
      for (int y = other; y < other + tile; y++)
        for (int k = at; k < at + tile; k++) {
          float factor = matrix[y * n + k] /= matrix[k * n + k];
          for (int x = k + 1; x < at + tile; x++)
            matrix[y * n + x] -= factor * matrix[k * n + x];
        }
    }
#pragma omp parallel for
    for (int y = at + tile; y < n; y++)
      for (int k = at; k < at + tile; k++) {
        float factor = matrix[y * n + k];
        for (int x = at + tile; x < n; x++)
          matrix[y * n + x] -= factor * matrix[k * n + x];
      }
  }
}

static double lud_sum(void) { return total(matrix, (size_t)LUD_SIDE * LUD_SIDE); }

int main(void) {
  latitude = reserve(sizeof(float) * NN_RECORDS), longitude = reserve(sizeof(float) * NN_RECORDS);
  distance = reserve(sizeof(float) * NN_RECORDS);
  for (uint32_t i = 0; i < NN_RECORDS; i++)
    latitude[i] = sample(i) * 60, longitude[i] = sample(i + NN_RECORDS) * 180;
  size_t cells = (size_t)HOTSPOT_SIDE * HOTSPOT_SIDE;
  for (float **grid = heat; grid < heat + 2; grid++)
    *grid = reserve(sizeof(float) * cells);
  power = reserve(sizeof(float) * cells), start = reserve(sizeof(float) * cells);
  for (uint32_t i = 0; i < cells; i++)
    start[i] = 300 + sample(i) * 40, power[i] = sample(~i);
  size_t pixels = (size_t)SRAD_SIDE * SRAD_SIDE;
  image = reserve(sizeof(float) * pixels), picture = reserve(sizeof(float) * pixels);
  coefficient = reserve(sizeof(float) * pixels);
  for (int i = 0; i < 4; i++)
    gradient[i] = reserve(sizeof(float) * pixels);
  for (uint32_t i = 0; i < pixels; i++)
    picture[i] = expf(sample(i));
  edges = reserve(sizeof(int) * BFS_NODES * BFS_DEGREE), cost = reserve(sizeof(int) * BFS_NODES);
  frontier = reserve(BFS_NODES), updating = reserve(BFS_NODES);
  for (uint32_t i = 0; i < BFS_NODES * BFS_DEGREE; i++)
    edges[i] = (int)neighbour(i / BFS_DEGREE, i % BFS_DEGREE);
  features = reserve(sizeof(float) * KMEANS_POINTS * KMEANS_FEATURES);
  centres = reserve(sizeof(float) * 192);
  membership = reserve(sizeof(int) * KMEANS_POINTS), sizes = reserve(64);
  for (uint32_t i = 0; i < KMEANS_POINTS * KMEANS_FEATURES; i++)
    features[i] = sample(i);
  for (uint32_t i = 0; i < KMEANS_CLUSTERS * KMEANS_FEATURES; i++)
    centres[i] = sample(i + 77777);
  matrix = reserve(sizeof(float) * LUD_SIDE * LUD_SIDE), original = reserve(sizeof(float) * LUD_SIDE * LUD_SIDE);
  for (uint32_t i = 0; i < LUD_SIDE * LUD_SIDE; i++)
    original[i] = sample(i) + (i % (LUD_SIDE + 1) ? 0 : LUD_SIDE);
  measure("nn", NULL, nn, nn_sum);
  measure("hotspot", hotspot_reset, hotspot, hotspot_sum);
  measure("srad", srad_reset, srad, srad_sum);
  measure("bfs", NULL, bfs, bfs_sum);
  measure("kmeans", NULL, kmeans, kmeans_sum);
  measure("lud", lud_reset, lud, lud_sum);
  return 0;
}
