/* Observing libcuda while anything is asked for. */
#ifndef VGS_CUPTI_OBSERVE_H
#define VGS_CUPTI_OBSERVE_H

/* Observe if anything is asked for, else do not. Returns a CUptiResult. No lock held. */
int vgs_cupti_update(void);

#endif
