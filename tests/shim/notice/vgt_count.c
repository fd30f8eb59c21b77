/* What a program over a CUDA runtime sees: cudaGetDeviceCount, twice, and the sticky error. */
#include <stdio.h>

extern int cudaGetDeviceCount(int *count);
extern int cudaGetLastError(void);

int main(void) {
  int count = -1;
  int first = cudaGetDeviceCount(&count), second = cudaGetDeviceCount(&count);
  printf("count %d %d %d last %d\n", first, second, count, cudaGetLastError());
  return 0;
}
