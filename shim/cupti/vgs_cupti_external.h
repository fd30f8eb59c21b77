/* External correlation: ids that the program pushes; calls made before they are popped belong to them. */
#ifndef VGS_CUPTI_EXTERNAL_H
#define VGS_CUPTI_EXTERNAL_H

#include <stdint.h>

/* Put a record for each kind whose stack in the calling thread is not empty. */
void vgs_cupti_put_external(uint32_t correlation);

#endif
