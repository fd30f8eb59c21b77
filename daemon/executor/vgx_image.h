/* Uploaded images. */
#ifndef VGX_IMAGE_H
#define VGX_IMAGE_H

#include "vgx_session.h"

/* A complete image, taken out of the session so that no lock is held while it is used; the caller puts it back.
 * INVALID_IMAGE when there is none (a failed upload was reported as a queued error) or while it is in use. */
CUresult vgx_image_acquire(struct vgx_session *s, uint32_t id, struct vgx_image *taken);
void vgx_image_release(struct vgx_session *s, const struct vgx_image *taken);
/* The same around loading it, which counts as compiling. JIT_COMPILATION_DISABLED: the tenant has no time left. */
CUresult vgx_image_load_begin(struct vgx_session *s, uint32_t id, struct vgx_image *taken);
void vgx_image_load_end(struct vgx_session *s, const struct vgx_image *taken);
/* Count the image below the module or library that was loaded from it, which took no reference to its bytes. */
void vgx_image_charge(struct vgx_session *s, const struct vgx_image *taken, enum vgw_kind kind, uint32_t id);
/* Keep bytes from malloc as a complete image; false, and they stay the caller's, when there is no room. */
bool vgx_image_add(struct vgx_session *s, uint32_t id, void *data, uint64_t nbytes);
void vgx_images_free(struct vgx_session *s);

#endif
