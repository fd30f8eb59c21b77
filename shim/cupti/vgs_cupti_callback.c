/* One subscriber at a time, as CUPTI has it. Its function is called without a lock: it may call CUPTI, and end its own
 * subscription. */
#include "vgs_cupti_callback.h"
#include "vgs_cupti_state.h"
#include <string.h>

struct vgs_cupti_subscriber {
  vgs_cupti_callback callback; /* atomic; NULL: nobody has subscribed */
  void *userdata;
  uint8_t enabled[VGS_DOMAIN_COUNT][VGS_CALLBACK_IDS]; /* atomic */
};

static struct vgs_cupti_subscriber the_subscriber;
static uint32_t enabled_count[VGS_DOMAIN_COUNT]; /* atomic */

CUpti_SubscriberHandle vgs_cupti_subscribe(vgs_cupti_callback callback, void *userdata) {
  pthread_mutex_lock(&vgs_cupti_lock);
  bool taken = the_subscriber.callback;
  if (!taken) {
    the_subscriber.userdata = userdata;
    __atomic_store_n(&the_subscriber.callback, callback, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&vgs_cupti_lock);
  return taken ? NULL : &the_subscriber;
}

bool vgs_cupti_is_subscriber(CUpti_SubscriberHandle subscriber) {
  return subscriber == &the_subscriber && __atomic_load_n(&the_subscriber.callback, __ATOMIC_ACQUIRE);
}

void vgs_cupti_reset_subscriber(void) {
  memset(&the_subscriber, 0, sizeof the_subscriber);
  memset(enabled_count, 0, sizeof enabled_count);
}

void vgs_cupti_enable_callback(uint32_t domain, uint32_t id, bool on) {
  if (__atomic_exchange_n(&the_subscriber.enabled[domain][id], on, __ATOMIC_RELAXED) == on)
    return;
  __atomic_fetch_add(&enabled_count[domain], on ? 1 : -1, __ATOMIC_RELAXED);
  vgs_cupti_count_callbacks(on ? 1 : -1);
}

void vgs_cupti_unsubscribe(void) {
  for (uint32_t domain = 1; domain < VGS_DOMAIN_COUNT; domain++)
    for (uint32_t id = 1; id < VGS_CALLBACK_IDS; id++)
      vgs_cupti_enable_callback(domain, id, false);
  __atomic_store_n(&the_subscriber.callback, NULL, __ATOMIC_RELEASE);
}

/* The kernel of a launch; NULL for another call. */
static const char *symbol_of(const struct vgs_profiling *driver, const struct vgs_api_call *call,
                             const struct vgs_cupti_function *function) {
  if (function && function->what == VGS_CALL_LAUNCH)
    return driver->kernel_name(((void *const *)call->params)[0]);
  if (function && function->what == VGS_CALL_LAUNCH_EX)
    return driver->kernel_name(((void *const *)call->params)[1]);
  return NULL;
}

void vgs_cupti_call_subscriber(struct vgs_api_call *call, uint32_t site, int *result,
                               const struct vgs_cupti_function *function) {
  vgs_cupti_callback callback = __atomic_load_n(&the_subscriber.callback, __ATOMIC_ACQUIRE);
  if (!callback || call->id >= VGS_CALLBACK_IDS || !vgs_cupti_wants_event(call->domain, call->id))
    return;
  const struct vgs_profiling *driver = vgs_cupti_driver();
  struct vgs_context_facts context = {0};
  driver->context(NULL, &context);
  struct vgs_cupti_callback_data data = {.site = site,
                                         .function = call->name,
                                         .params = call->params,
                                         .result = site == VGS_SITE_EXIT ? result : NULL,
                                         .symbol = symbol_of(driver, call, function),
                                         .context = driver->current(),
                                         .context_id = context.id,
                                         .correlation_data = &call->data,
                                         .correlation = call->correlation};
  callback(the_subscriber.userdata, call->domain, call->id, &data);
}

bool vgs_cupti_wants_domain(uint32_t domain) { return __atomic_load_n(&enabled_count[domain], __ATOMIC_RELAXED); }

bool vgs_cupti_wants_event(uint32_t domain, uint32_t id) {
  return __atomic_load_n(&the_subscriber.enabled[domain][id], __ATOMIC_RELAXED);
}

void vgs_cupti_call_about(uint32_t domain, uint32_t id, const void *data) {
  vgs_cupti_callback callback = __atomic_load_n(&the_subscriber.callback, __ATOMIC_ACQUIRE);
  if (callback && vgs_cupti_wants_event(domain, id))
    callback(the_subscriber.userdata, domain, id, data);
}
