/* Physical memory of cuMemCreate that other clients of the tenant may import. */
#ifndef VGX_SHARE_H
#define VGX_SHARE_H

#include <stdint.h>

struct vgx_session;

/* The allocation of this id is about to be released: nobody imports it any more; who has imported it keeps it. */
void vgx_share_released(struct vgx_session *s, uint32_t allocation);

#endif
