/* Descriptors that name shared objects to vgpud. */
#ifndef VGS_SHARE_H
#define VGS_SHARE_H

#include "vgw_cuda.h"
#include <stdbool.h>

enum { VGS_SHARE_DESCRIPTOR = 1 }; /* CUmemAllocationHandleType: POSIX file descriptor */
enum { VGS_SHARE_TOKEN_NBYTES = 64 };

/* SUCCESS for the only supported type of handle; else the error to return. */
CUresult vgs_share_check_type(int type);

/* A new descriptor of a sealed file with an object's kind and token; *fd is written on success alone. */
CUresult vgs_share_write(const char kind[16], const void *token, int *fd);

/* The token of a descriptor that vgs_share_write made for an object of this kind. False: it is no such descriptor. */
bool vgs_share_read(int fd, const char kind[16], void *token);

#endif
