/* Stands for crt/host_defines.h, which comes with the compiler's package and not with the runtime's headers. */
#pragma once
#define __device_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __cudart_builtin__
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))
#define CUDARTAPI
#define CUDARTAPI_CDECL
#define __host__
#define __device__
#define __inline__ __inline
