/* Physical memory of cuMemCreate that other clients of the tenant may import. */
#ifndef VGX_SHARE_H
#define VGX_SHARE_H

#include <stdint.h>

struct vgx_session;

/* Called before the allocation of this id is released: it cannot be imported any more. Workers that have imported it
 * keep it. */
void vgx_share_released(struct vgx_session *s, uint32_t allocation);

#endif
