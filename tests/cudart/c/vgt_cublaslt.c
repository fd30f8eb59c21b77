/* A stand-in for libcublasLt: programs that are linked to libcublasLt can be loaded, but no function computes. */
enum { NOT_SUPPORTED = 15 };

#define REFUSED(name)                                                                                                  \
  int name(void) { return NOT_SUPPORTED; }
REFUSED(cublasLtMatmul)
REFUSED(cublasLtMatmulDescCreate)
REFUSED(cublasLtMatmulDescDestroy)
REFUSED(cublasLtMatmulDescSetAttribute)
REFUSED(cublasLtMatrixLayoutCreate)
REFUSED(cublasLtMatrixLayoutDestroy)
