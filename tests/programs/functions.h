// Declarations that functions.cu and functions.part.cu share.
#pragma once

typedef int (*unary_fn)(int);

extern __device__ int bias;       // defined in functions.cu
extern __device__ int part_calls; // defined in functions.part.cu

__device__ int triple(int x);
__device__ int negate(int x);
__device__ int part_twice(unary_fn f, int x);
void part_run(const int *x, int *y, int n);

struct shape {
  __device__ virtual int area() const = 0;
};

struct rectangle : shape {
  int width, height;
  __device__ rectangle(int w, int h) : width(w), height(h) {}
  __device__ int area() const override; // defined in functions.part.cu
};

__device__ int measure(const shape *s);
