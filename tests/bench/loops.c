/* The reference for kernels.cu: the same work as plain loops, gcc -O3 -march=native -fopenmp, with output in the same
 * format. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "sizes.h"

static float x[VECTOR], y[VECTOR], z[VECTOR], a[MATRIX][MATRIX], b[MATRIX][MATRIX], c[MATRIX][MATRIX];
static unsigned char bytes[VECTOR];
static unsigned bins[256];
static float sum;

static void saxpy(void) {
#pragma omp parallel for simd
  for (int i = 0; i < VECTOR; i++)
    y[i] = 2.0f * x[i] + y[i];
}

static void matmul(void) {
#pragma omp parallel for
  for (int row = 0; row < MATRIX; row++) {
    for (int column = 0; column < MATRIX; column++)
      c[row][column] = 0;
    for (int k = 0; k < MATRIX; k++)
      for (int column = 0; column < MATRIX; column++)
        c[row][column] += a[row][k] * b[k][column];
  }
}

static void reduction(void) {
  float total = 0;
#pragma omp parallel for simd reduction(+ : total)
  for (int i = 0; i < VECTOR; i++)
    total += x[i];
  sum += total;
}

static void histogram(void) {
#pragma omp parallel for reduction(+ : bins)
  for (int i = 0; i < VECTOR; i++)
    bins[bytes[i]]++;
}

static void copy(void) {
#pragma omp parallel for simd
  for (int i = 0; i < VECTOR; i++)
    z[i] = x[i];
}

static double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void measure(const char *name, void (*run)(void)) {
  double first_s = 0, best_s = 1e9;
  for (int round = 0; round <= ROUNDS; round++) {
    double start_s = now_s();
    run();
    double elapsed_s = now_s() - start_s;
    if (round == 0)
      first_s = elapsed_s;
    else if (elapsed_s < best_s)
      best_s = elapsed_s;
  }
  printf("%s %.9f %.9f\n", name, best_s, first_s);
}

int main(void) {
  for (int i = 0; i < VECTOR; i++) {
    x[i] = y[i] = 1;
    bytes[i] = (unsigned char)((unsigned)i * 2654435761u >> 13);
  }
  for (int row = 0; row < MATRIX; row++)
    for (int column = 0; column < MATRIX; column++)
      a[row][column] = b[row][column] = 1;
  measure("saxpy", saxpy);
  measure("matmul", matmul);
  measure("reduction", reduction);
  measure("histogram", histogram);
  measure("reduction_tree", reduction);
  for (const char *const *name = (const char *[]){"copy_bytes", "copy_halves", "copy_words", "copy_wide", NULL}; *name;
       name++)
    measure(*name, copy);
  unsigned counted = 0;
  for (int i = 0; i < 256; i++)
    counted += bins[i];
  if (y[VECTOR - 1] != 1 + 2.0f * (ROUNDS + 1) || c[MATRIX - 1][MATRIX - 1] != MATRIX ||
      counted != (unsigned)VECTOR * (ROUNDS + 1) || sum < VECTOR || z[VECTOR - 1] != 1) {
    fprintf(stderr, "wrong results\n");
    return 1;
  }
  return 0;
}
