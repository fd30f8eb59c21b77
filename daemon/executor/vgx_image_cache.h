/* The worker's questions to the host's cache of images. */
#ifndef VGX_IMAGE_CACHE_H
#define VGX_IMAGE_CACHE_H

#include <stdbool.h>
#include <stdint.h>

/* Before vgx_serve: the socket to the host's image cache; takes ownership of it. Without it clients may not offer
 * images. */
void vgx_image_cache_set(int fd);

/* The host's cache of images, this tenant's alone (daemon/vgpud/services/image_service.py). Thread-safe; never blocks
 * long. find: a descriptor of a sealed memfd that holds the image and VGX_IMAGE_PADDING zeros, or -1. store: offer such
 * a memfd, which the host verifies; it stays the caller's. */
bool vgx_image_cache_is_there(void);
int vgx_image_cache_find(const uint64_t digest[4], uint64_t nbytes);
void vgx_image_cache_store(const uint64_t digest[4], uint64_t nbytes, int fd);

#endif
