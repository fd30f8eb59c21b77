/* Prints what a program over a CUDA runtime sees: the results of cudaGetDeviceCount, twice, and the last error. */
#include <stdio.h>

extern int cudaGetDeviceCount(int *count);
extern int cudaGetLastError(void);

int main(void) {
  int count = -1;
  int first = cudaGetDeviceCount(&count), second = cudaGetDeviceCount(&count);
  printf("count %d %d %d last %d\n", first, second, count, cudaGetLastError());
  return 0;
}
