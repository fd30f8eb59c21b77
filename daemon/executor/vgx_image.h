/* Uploaded images. */
#ifndef VGX_IMAGE_H
#define VGX_IMAGE_H

#include "vgx_session.h"

/* A complete image, taken out of the session so that no lock is held while it is used; the caller puts it back.
 * INVALID_IMAGE when there is none (a failed upload was reported as a queued error) or while it is in use. */
CUresult vgx_image_acquire(struct vgx_session *s, uint32_t id, struct vgx_image *taken);
void vgx_image_release(struct vgx_session *s, const struct vgx_image *taken);
/* Likewise, to load the image, which counts as compiling. JIT_COMPILATION_DISABLED: the tenant's time is used up. */
CUresult vgx_image_load_begin(struct vgx_session *s, uint32_t id, struct vgx_image *taken);
void vgx_image_load_end(struct vgx_session *s, const struct vgx_image *taken);
/* Charge the image's size to the module or library that was loaded from it and does not refer to its bytes. */
void vgx_image_charge(struct vgx_session *s, const struct vgx_image *taken, enum vgw_kind kind, uint32_t id);
/* Add malloc'ed bytes as a complete image. False: there is no room, and the caller still owns the bytes. */
bool vgx_image_add(struct vgx_session *s, uint32_t id, void *data, uint64_t nbytes);
void vgx_images_free(struct vgx_session *s);

#endif
