/* The subscriber, whose function is called around the calls that it enabled. */
#ifndef VGS_CUPTI_CALLBACK_H
#define VGS_CUPTI_CALLBACK_H

#include "vgs_cupti.h"
#include "vgs_cupti_tables.h"
#include "vgs_profiling.h"

/* Call the subscriber at `site` (VGS_SITE_*), if it wants that. `function`: of a driver call, else NULL. No lock held.
 */
void vgs_cupti_call_subscriber(struct vgs_api_call *call, uint32_t site, int *result,
                               const struct vgs_cupti_function *function);

/* Call the subscriber with the data of an event of another domain, if it wants that. No lock held. */
void vgs_cupti_call_about(uint32_t domain, uint32_t id, const void *data);

/* Whether the subscriber wants any event of the domain; whether it wants event `id`. */
bool vgs_cupti_wants_domain(uint32_t domain);
bool vgs_cupti_wants_event(uint32_t domain, uint32_t id);

enum { VGS_CALLBACK_IDS = 1024 }; /* more than any domain has */

/* Subscribe; NULL: there is a subscriber already. */
CUpti_SubscriberHandle vgs_cupti_subscribe(vgs_cupti_callback callback, void *userdata);
bool vgs_cupti_is_subscriber(CUpti_SubscriberHandle subscriber);
void vgs_cupti_enable_callback(uint32_t domain, uint32_t id, bool on);

/* End the subscription. */
void vgs_cupti_unsubscribe(void);

/* In a forked child: forget the subscriber. */
void vgs_cupti_reset_subscriber(void);

#endif
