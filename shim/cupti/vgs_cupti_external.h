/* External correlation: ids of the program's own that calls made inside them belong to. */
#ifndef VGS_CUPTI_EXTERNAL_H
#define VGS_CUPTI_EXTERNAL_H

#include <stdint.h>

/* Put a record for each kind whose stack in the calling thread is not empty. */
void vgs_cupti_put_external(uint32_t correlation);

#endif
