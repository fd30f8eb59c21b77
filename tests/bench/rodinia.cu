// Six kernels like those of the Rodinia suite, in the usual style for a card but without its code. rodinia.c does the
// same work with OpenMP. Prints for each kernel: name, best time, time of the first run, and a sum of the results.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <cuda_runtime.h>

#include "rodinia.h"

#define CUDA(call)                                                                                                     \
  do {                                                                                                                 \
    cudaError_t error_ = (call);                                                                                       \
    if (error_ != cudaSuccess) {                                                                                       \
      fprintf(stderr, "%s: %s\n", #call, cudaGetErrorName(error_));                                                    \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)

__global__ void nn(const float *latitude, const float *longitude, float *distance, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    float dx = latitude[i] - 30.0f, dy = longitude[i] - 90.0f;
    distance[i] = sqrtf(dx * dx + dy * dy);
  }
}

// Keeps a tile of 16 x 16 elements and the elements around it in shared memory.
__global__ void hotspot(const float *in, const float *power, float *out, int n) {
  __shared__ float tile[18][18];
  int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
  int tx = threadIdx.x + 1, ty = threadIdx.y + 1;
  tile[ty][tx] = in[y * n + x];
  if (threadIdx.x == 0)
    tile[ty][0] = in[y * n + (x ? x - 1 : 0)];
  if (threadIdx.x == 15)
    tile[ty][17] = in[y * n + (x < n - 1 ? x + 1 : x)];
  if (threadIdx.y == 0)
    tile[0][tx] = in[(y ? y - 1 : 0) * n + x];
  if (threadIdx.y == 15)
    tile[17][tx] = in[(y < n - 1 ? y + 1 : y) * n + x];
  __syncthreads();
  float centre = tile[ty][tx];
  out[y * n + x] =
      centre + 0.1f * (power[y * n + x] + (tile[ty - 1][tx] + tile[ty + 1][tx] - 2 * centre) * 0.5f +
                       (tile[ty][tx - 1] + tile[ty][tx + 1] - 2 * centre) * 0.5f + (80.0f - centre) * 0.01f);
}

// sums[0] is the sum of the values, sums[1] the sum of their squares.
__global__ void srad_sums(const float *image, int n, float *sums) {
  __shared__ float sum[256], squares[256];
  float own = 0, square = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    own += image[i];
    square += image[i] * image[i];
  }
  sum[threadIdx.x] = own;
  squares[threadIdx.x] = square;
  __syncthreads();
  for (int half = 128; half; half /= 2) {
    if (threadIdx.x < half) {
      sum[threadIdx.x] += sum[threadIdx.x + half];
      squares[threadIdx.x] += squares[threadIdx.x + half];
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    atomicAdd(&sums[0], sum[0]);
    atomicAdd(&sums[1], squares[0]);
  }
}

__global__ void srad_coefficient(const float *image, const float *sums, float *c, float *dn, float *ds, float *dw,
                                 float *de, int n) {
  int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y, i = y * n + x;
  float mean = sums[0] / (n * n), q0 = (sums[1] / (n * n) - mean * mean) / (mean * mean);
  float own = image[i];
  float north = image[(y ? y - 1 : 0) * n + x] - own, south = image[(y < n - 1 ? y + 1 : y) * n + x] - own;
  float west = image[y * n + (x ? x - 1 : 0)] - own, east = image[y * n + (x < n - 1 ? x + 1 : x)] - own;
  float g = (north * north + south * south + west * west + east * east) / (own * own);
  float l = (north + south + west + east) / own;
  float numerator = 0.5f * g - 0.0625f * l * l, root = 1 + 0.25f * l;
  float q = numerator / (root * root);
  float value = 1.0f / (1.0f + (q - q0) / (q0 * (1 + q0)));
  dn[i] = north, ds[i] = south, dw[i] = west, de[i] = east;
  c[i] = value < 0 ? 0 : value > 1 ? 1 : value;
}

__global__ void srad_update(float *image, const float *c, const float *dn, const float *ds, const float *dw,
                            const float *de, int n) {
  int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y, i = y * n + x;
  float own = c[i], south = c[(y < n - 1 ? y + 1 : y) * n + x], east = c[y * n + (x < n - 1 ? x + 1 : x)];
  image[i] += 0.125f * (own * dn[i] + south * ds[i] + own * dw[i] + east * de[i]);
}

__global__ void bfs_visit(const int *edges, unsigned char *frontier, unsigned char *updating, int *cost, int level) {
  int node = blockIdx.x * blockDim.x + threadIdx.x;
  if (!frontier[node])
    return;
  frontier[node] = 0;
  for (int edge = 0; edge < BFS_DEGREE; edge++) {
    int to = edges[node * BFS_DEGREE + edge];
    if (cost[to] < 0) {
      cost[to] = level + 1;
      updating[to] = 1;
    }
  }
}

__global__ void bfs_advance(unsigned char *frontier, unsigned char *updating, int *more) {
  int node = blockIdx.x * blockDim.x + threadIdx.x;
  if (updating[node]) {
    frontier[node] = 1;
    updating[node] = 0;
    *more = 1;
  }
}

__global__ void kmeans(const float *features, const float *centres, int *membership, int *sizes) {
  int point = blockIdx.x * blockDim.x + threadIdx.x;
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
  atomicAdd(&sizes[nearest], 1);
}

__global__ void lud_diagonal(float *matrix, int at) {
  __shared__ float tile[LUD_TILE][LUD_TILE];
  int x = threadIdx.x;
  for (int y = 0; y < LUD_TILE; y++)
    tile[y][x] = matrix[(at + y) * LUD_SIDE + at + x];
  __syncthreads();
  for (int k = 0; k < LUD_TILE - 1; k++) {
    if (x > k)
      tile[x][k] /= tile[k][k];
    __syncthreads();
    if (x > k)
      for (int column = k + 1; column < LUD_TILE; column++)
        tile[x][column] -= tile[x][k] * tile[k][column];
    __syncthreads();
  }
  for (int y = 0; y < LUD_TILE; y++)
    matrix[(at + y) * LUD_SIDE + at + x] = tile[y][x];
}

// The first 16 threads of a block handle a tile to the right of the diagonal tile, the others a tile below it.
__global__ void lud_perimeter(float *matrix, int at) {
  __shared__ float diagonal[LUD_TILE][LUD_TILE], row[LUD_TILE][LUD_TILE], column[LUD_TILE][LUD_TILE];
  int other = at + (blockIdx.x + 1) * LUD_TILE, x = threadIdx.x % LUD_TILE;
  bool right = threadIdx.x < LUD_TILE;
  for (int y = 0; y < LUD_TILE; y++) {
    if (right) {
      row[y][x] = matrix[(at + y) * LUD_SIDE + other + x];
      diagonal[y][x] = matrix[(at + y) * LUD_SIDE + at + x];
    } else {
      column[y][x] = matrix[(other + y) * LUD_SIDE + at + x];
    }
  }
  __syncthreads();
  if (right) {
    for (int y = 1; y < LUD_TILE; y++)
      for (int k = 0; k < y; k++)
        row[y][x] -= diagonal[y][k] * row[k][x];
  } else {
    for (int k = 0; k < LUD_TILE; k++) {
      for (int i = 0; i < k; i++)
        column[x][k] -= column[x][i] * diagonal[i][k];
      column[x][k] /= diagonal[k][k];
    }
  }
  __syncthreads();
  for (int y = 0; y < LUD_TILE; y++) {
    if (right)
      matrix[(at + y) * LUD_SIDE + other + x] = row[y][x];
    else
      matrix[(other + y) * LUD_SIDE + at + x] = column[y][x];
  }
}

__global__ void lud_internal(float *matrix, int at) {
  __shared__ float row[LUD_TILE][LUD_TILE], column[LUD_TILE][LUD_TILE];
  int x = threadIdx.x, y = threadIdx.y;
  int to_y = at + (blockIdx.y + 1) * LUD_TILE + y, to_x = at + (blockIdx.x + 1) * LUD_TILE + x;
  row[y][x] = matrix[(at + y) * LUD_SIDE + to_x];
  column[y][x] = matrix[to_y * LUD_SIDE + at + x];
  __syncthreads();
  float sum = 0;
  for (int k = 0; k < LUD_TILE; k++)
    sum += column[y][k] * row[k][x];
  matrix[to_y * LUD_SIDE + to_x] -= sum;
}

template <typename T> static T *reserve(size_t count) {
  T *place;
  CUDA(cudaMalloc(&place, count * sizeof(T)));
  return place;
}

template <typename T> static T *copied(const std::vector<T> &values) {
  T *place = reserve<T>(values.size());
  CUDA(cudaMemcpy(place, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  return place;
}

template <typename T> static double total(const T *place, size_t count) {
  std::vector<T> values(count);
  CUDA(cudaMemcpy(values.data(), place, count * sizeof(T), cudaMemcpyDeviceToHost));
  double sum = 0;
  for (T value : values)
    sum += value;
  return sum;
}

template <typename Reset, typename Launch, typename Sum>
static void measure(const char *name, Reset reset, Launch launch, Sum sum) {
  double first_s = 0, best_s = 1e9;
  for (int round = 0; round <= ROUNDS; round++) {
    reset();
    CUDA(cudaDeviceSynchronize());
    auto start = std::chrono::steady_clock::now();
    launch();
    CUDA(cudaGetLastError());
    CUDA(cudaDeviceSynchronize());
    double elapsed_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (round == 0)
      first_s = elapsed_s;
    else
      best_s = std::min(best_s, elapsed_s);
  }
  printf("%s %.9f %.9f %.6g\n", name, best_s, first_s, sum());
}

static void measure_nn() {
  std::vector<float> latitude(NN_RECORDS), longitude(NN_RECORDS);
  for (uint32_t i = 0; i < NN_RECORDS; i++)
    latitude[i] = sample(i) * 60, longitude[i] = sample(i + NN_RECORDS) * 180;
  float *x = copied(latitude), *y = copied(longitude), *distance = reserve<float>(NN_RECORDS);
  measure(
      "nn", [] {}, [&] { nn<<<NN_RECORDS / 256, 256>>>(x, y, distance, NN_RECORDS); },
      [&] { return total(distance, NN_RECORDS); });
}

static void measure_hotspot() {
  const int n = HOTSPOT_SIDE;
  std::vector<float> start(n * n), watts(n * n);
  for (uint32_t i = 0; i < start.size(); i++)
    start[i] = 300 + sample(i) * 40, watts[i] = sample(~i);
  float *first = copied(start), *power = copied(watts), *heat[2] = {reserve<float>(n * n), reserve<float>(n * n)};
  measure(
      "hotspot", [&] { CUDA(cudaMemcpy(heat[0], first, n * n * sizeof(float), cudaMemcpyDeviceToDevice)); },
      [&] {
        for (int step = 0; step < HOTSPOT_STEPS; step++)
          hotspot<<<dim3(n / 16, n / 16), dim3(16, 16)>>>(heat[step & 1], power, heat[~step & 1], n);
      },
      [&] { return total(heat[HOTSPOT_STEPS & 1], n * n); });
}

static void measure_srad() {
  const int n = SRAD_SIDE;
  std::vector<float> picture(n * n);
  for (uint32_t i = 0; i < picture.size(); i++)
    picture[i] = expf(sample(i));
  float *first = copied(picture), *image = reserve<float>(n * n), *c = reserve<float>(n * n), *d[4],
        *sums = reserve<float>(2);
  for (float *&gradient : d)
    gradient = reserve<float>(n * n);
  dim3 grid(n / 16, n / 16), block(16, 16);
  measure(
      "srad", [&] { CUDA(cudaMemcpy(image, first, n * n * sizeof(float), cudaMemcpyDeviceToDevice)); },
      [&] {
        for (int step = 0; step < SRAD_STEPS; step++) {
          CUDA(cudaMemsetAsync(sums, 0, 2 * sizeof(float)));
          srad_sums<<<128, 256>>>(image, n * n, sums);
          srad_coefficient<<<grid, block>>>(image, sums, c, d[0], d[1], d[2], d[3], n);
          srad_update<<<grid, block>>>(image, c, d[0], d[1], d[2], d[3], n);
        }
      },
      [&] { return total(image, n * n); });
}

static void measure_bfs() {
  std::vector<int> list(BFS_NODES * BFS_DEGREE);
  for (uint32_t i = 0; i < list.size(); i++)
    list[i] = (int)neighbour(i / BFS_DEGREE, i % BFS_DEGREE);
  int *edges = copied(list), *cost = reserve<int>(BFS_NODES), *more = reserve<int>(1);
  unsigned char *frontier = reserve<unsigned char>(BFS_NODES), *updating = reserve<unsigned char>(BFS_NODES);
  measure(
      "bfs", [] {},
      [&] {
        CUDA(cudaMemset(frontier, 0, BFS_NODES));
        CUDA(cudaMemset(updating, 0, BFS_NODES));
        CUDA(cudaMemset(cost, 0xff, BFS_NODES * sizeof(int)));
        CUDA(cudaMemset(frontier, 1, 1));
        CUDA(cudaMemset(cost, 0, sizeof(int)));
        int again = 1;
        for (int level = 0; again; level++) {
          CUDA(cudaMemset(more, 0, sizeof(int)));
          bfs_visit<<<BFS_NODES / 256, 256>>>(edges, frontier, updating, cost, level);
          bfs_advance<<<BFS_NODES / 256, 256>>>(frontier, updating, more);
          CUDA(cudaMemcpy(&again, more, sizeof(int), cudaMemcpyDeviceToHost));
        }
      },
      [&] { return total(cost, BFS_NODES); });
}

static void measure_kmeans() {
  std::vector<float> points(KMEANS_POINTS * KMEANS_FEATURES), middles(KMEANS_CLUSTERS * KMEANS_FEATURES);
  for (uint32_t i = 0; i < points.size(); i++)
    points[i] = sample(i);
  for (uint32_t i = 0; i < middles.size(); i++)
    middles[i] = sample(i + 77777);
  float *features = copied(points), *centres = copied(middles);
  int *membership = reserve<int>(KMEANS_POINTS), *sizes = reserve<int>(KMEANS_CLUSTERS);
  measure(
      "kmeans", [] {},
      [&] {
        CUDA(cudaMemsetAsync(sizes, 0, KMEANS_CLUSTERS * sizeof(int)));
        kmeans<<<KMEANS_POINTS / 256, 256>>>(features, centres, membership, sizes);
      },
      [&] {
        std::vector<int> counted(KMEANS_CLUSTERS);
        CUDA(cudaMemcpy(counted.data(), sizes, counted.size() * sizeof(int), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (int cluster = 0; cluster < KMEANS_CLUSTERS; cluster++)
          sum += (double)counted[cluster] * (cluster + 1);
        return sum;
      });
}

static void measure_lud() {
  std::vector<float> original(LUD_SIDE * LUD_SIDE);
  for (uint32_t i = 0; i < original.size(); i++)
    original[i] = sample(i) + (i % (LUD_SIDE + 1) ? 0 : LUD_SIDE);
  float *first = copied(original), *matrix = reserve<float>(original.size());
  measure(
      "lud", [&] { CUDA(cudaMemcpy(matrix, first, original.size() * sizeof(float), cudaMemcpyDeviceToDevice)); },
      [&] {
        for (int at = 0; at < LUD_SIDE; at += LUD_TILE) {
          int others = (LUD_SIDE - at) / LUD_TILE - 1;
          lud_diagonal<<<1, LUD_TILE>>>(matrix, at);
          if (!others)
            break;
          lud_perimeter<<<others, 2 * LUD_TILE>>>(matrix, at);
          lud_internal<<<dim3(others, others), dim3(LUD_TILE, LUD_TILE)>>>(matrix, at);
        }
      },
      [&] { return total(matrix, original.size()); });
}

int main() {
  measure_nn();
  measure_hotspot();
  measure_srad();
  measure_bfs();
  measure_kmeans();
  measure_lud();
  return 0;
}
