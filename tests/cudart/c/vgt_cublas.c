/* A stand-in for libcublas, for programs that are linked to libcublas but have their own kernels: NVIDIA's libcublas is
 * half a gigabyte of machine code, which no simulated device runs. Sgemm is computed on the host; other computing
 * functions return NOT_SUPPORTED. */
#include <stdlib.h>

enum { SUCCESS = 0, ALLOC_FAILED = 3, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15, TRANSPOSED = 1 };
enum { TO_DEVICE = 1, TO_HOST = 2 };

/* Functions of the CUDA runtime that the program is linked to. */
extern int cudaMemcpy(void *dst, const void *src, size_t nbytes, int kind);
extern int cudaStreamSynchronize(void *stream);

struct handle {
  void *stream;
};

int cublasCreate_v2(struct handle **handle) {
  *handle = calloc(1, sizeof **handle);
  return *handle ? SUCCESS : ALLOC_FAILED;
}

int cublasDestroy_v2(struct handle *handle) {
  free(handle);
  return SUCCESS;
}

int cublasSetStream_v2(struct handle *handle, void *stream) {
  handle->stream = stream;
  return SUCCESS;
}

int cublasSetMathMode(struct handle *handle, int mode) {
  (void)handle, (void)mode; /* a math mode only permits less exact results */
  return SUCCESS;
}

int cublasSetWorkspace_v2(struct handle *handle, void *workspace, size_t nbytes) {
  (void)handle, (void)workspace, (void)nbytes;
  return SUCCESS;
}

const char *cublasGetStatusString(int status) { return status ? "an error of the stand-in for cuBLAS" : "success"; }

/* Copy a column-major matrix to the host; NULL if it cannot be read. */
static float *fetch(const float *device, int rows, int columns, int stride) {
  size_t nbytes = ((size_t)stride * (size_t)(columns - 1) + (size_t)rows) * sizeof(float);
  float *host = malloc(nbytes);
  if (host && cudaMemcpy(host, device, nbytes, TO_HOST)) {
    free(host);
    host = NULL;
  }
  return host;
}

int cublasSgemm_v2(struct handle *handle, int transa, int transb, int m, int n, int k, const float *alpha,
                   const float *a, int lda, const float *b, int ldb, const float *beta, float *c, int ldc) {
  if (m < 1 || n < 1 || k < 1)
    return SUCCESS;
  if (cudaStreamSynchronize(handle->stream))
    return EXECUTION_FAILED;
  float *host_a = transa ? fetch(a, k, m, lda) : fetch(a, m, k, lda);
  float *host_b = transb ? fetch(b, n, k, ldb) : fetch(b, k, n, ldb);
  float *host_c = fetch(c, m, n, ldc);
  int status = host_a && host_b && host_c ? SUCCESS : EXECUTION_FAILED;
  for (int j = 0; j < n && !status; j++)
    for (int i = 0; i < m; i++) {
      float sum = 0;
      for (int p = 0; p < k; p++)
        sum += (transa == TRANSPOSED ? host_a[(size_t)i * lda + p] : host_a[(size_t)p * lda + i]) *
               (transb == TRANSPOSED ? host_b[(size_t)p * ldb + j] : host_b[(size_t)j * ldb + p]);
      float *out = &host_c[(size_t)j * ldc + i];
      *out = *alpha * sum + (*beta != 0 ? *beta * *out : 0);
    }
  size_t nbytes = ((size_t)ldc * (size_t)(n - 1) + (size_t)m) * sizeof(float);
  if (!status && cudaMemcpy(c, host_c, nbytes, TO_DEVICE))
    status = EXECUTION_FAILED;
  free(host_a);
  free(host_b);
  free(host_c);
  return status;
}

#define REFUSED(name)                                                                                                  \
  int name(void) { return NOT_SUPPORTED; }
REFUSED(cublasGetMathMode)
REFUSED(cublasGemmEx)
REFUSED(cublasGemmBatchedEx)
REFUSED(cublasGemmStridedBatchedEx)
REFUSED(cublasSgemmBatched)
REFUSED(cublasSgemmStridedBatched)
REFUSED(cublasStrsmBatched)
