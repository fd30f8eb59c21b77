/* Observes libcuda while anything is enabled. */
#ifndef VGS_CUPTI_OBSERVE_H
#define VGS_CUPTI_OBSERVE_H

/* Start or stop observing, depending on whether anything is enabled. Returns a CUptiResult. No lock held. */
int vgs_cupti_update(void);

#endif
