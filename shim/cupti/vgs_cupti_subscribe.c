/* CUPTI's functions of subscribers and callbacks. */
#include "vgs_cupti_api.h"
#include "vgs_cupti_callback.h"
#include "vgs_cupti_observe.h"
#include "vgs_cupti_resource.h"
#include "vgs_cupti_result.h"
#include "vgs_cupti_runtime.h"
#include "vgs_cupti_state.h"
#include "vgs_log.h"

enum { RESOURCES = 26 }; /* the callback ids of 13.5, and the invalid one */

static uint32_t count_of(uint32_t domain) {
  return domain == VGS_DOMAIN_DRIVER     ? (uint32_t)vgs_cupti_drivers_count
         : domain == VGS_DOMAIN_RUNTIME  ? (uint32_t)vgs_cupti_runtimes_count
         : domain == VGS_DOMAIN_RESOURCE ? RESOURCES
                                         : 0;
}

/* The events that the library sees. */
static bool is_seen(uint32_t domain, uint32_t id) {
  return domain == VGS_DOMAIN_DRIVER || domain == VGS_DOMAIN_RUNTIME ||
         (domain == VGS_DOMAIN_RESOURCE && vgs_cupti_resource_is_seen(id));
}

static void enable_domain(uint32_t domain, bool on) {
  if (on && domain == VGS_DOMAIN_RUNTIME)
    vgs_cupti_explain_runtime();
  for (uint32_t id = 1; id < count_of(domain); id++)
    if (is_seen(domain, id))
      vgs_cupti_enable_callback(domain, id, on);
}

int vgs_cuptiSubscribe(CUpti_SubscriberHandle *subscriber, vgs_cupti_callback callback, void *userdata) {
  if (!subscriber || !callback)
    return CUPTI_ERROR_INVALID_PARAMETER;
  if (!vgs_cupti_driver())
    return CUPTI_ERROR_NOT_INITIALIZED;
  CUpti_SubscriberHandle made = vgs_cupti_subscribe(callback, userdata);
  if (!made)
    return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  *subscriber = made;
  return CUPTI_SUCCESS;
}

int vgs_cuptiUnsubscribe(CUpti_SubscriberHandle subscriber) {
  if (!vgs_cupti_is_subscriber(subscriber))
    return CUPTI_ERROR_INVALID_PARAMETER;
  vgs_cupti_unsubscribe();
  return vgs_cupti_update();
}

/* Events that this library never reports may be disabled, but not enabled. */
static int refuse(uint32_t domain, uint32_t id, uint32_t on) {
  static bool named;
  if (!on)
    return CUPTI_SUCCESS;
  if (!__atomic_exchange_n(&named, true, __ATOMIC_RELAXED))
    vgs_log(VGS_LOG_REASON, "CUPTI's callbacks of domain %u, id %u never come: CUPTI_ERROR_NOT_SUPPORTED", domain, id);
  return CUPTI_ERROR_NOT_SUPPORTED;
}

int vgs_cuptiEnableCallback(uint32_t on, CUpti_SubscriberHandle subscriber, uint32_t domain, uint32_t cbid) {
  if (!vgs_cupti_is_subscriber(subscriber) || !domain || domain >= VGS_DOMAIN_COUNT)
    return CUPTI_ERROR_INVALID_PARAMETER;
  if (count_of(domain) && (!cbid || cbid >= count_of(domain)))
    return CUPTI_ERROR_INVALID_PARAMETER;
  if (!is_seen(domain, cbid))
    return refuse(domain, cbid, on);
  vgs_cupti_enable_callback(domain, cbid, on);
  return vgs_cupti_update();
}

int vgs_cuptiEnableDomain(uint32_t on, CUpti_SubscriberHandle subscriber, uint32_t domain) {
  if (!vgs_cupti_is_subscriber(subscriber) || !domain || domain >= VGS_DOMAIN_COUNT)
    return CUPTI_ERROR_INVALID_PARAMETER;
  if (!count_of(domain))
    return refuse(domain, 0, on);
  enable_domain(domain, on);
  return vgs_cupti_update();
}

int vgs_cuptiEnableAllDomains(uint32_t on, CUpti_SubscriberHandle subscriber) {
  if (!vgs_cupti_is_subscriber(subscriber))
    return CUPTI_ERROR_INVALID_PARAMETER;
  for (uint32_t domain = 1; domain < VGS_DOMAIN_COUNT; domain++)
    enable_domain(domain, on);
  return vgs_cupti_update();
}

int vgs_cuptiGetCallbackState(uint32_t *on, CUpti_SubscriberHandle subscriber, uint32_t domain, uint32_t cbid) {
  if (!on || !vgs_cupti_is_subscriber(subscriber) || !domain || domain >= VGS_DOMAIN_COUNT || cbid >= VGS_CALLBACK_IDS)
    return CUPTI_ERROR_INVALID_PARAMETER;
  *on = vgs_cupti_wants_event(domain, cbid);
  return CUPTI_SUCCESS;
}

int vgs_cuptiGetCallbackName(uint32_t domain, uint32_t cbid, const char **name) {
  const char *found = NULL;
  if (domain == VGS_DOMAIN_DRIVER && cbid < vgs_cupti_drivers_count)
    found = vgs_cupti_drivers[cbid].name;
  if (domain == VGS_DOMAIN_RUNTIME && cbid < vgs_cupti_runtimes_count)
    found = vgs_cupti_runtimes[cbid].name;
  if (!name || !found)
    return CUPTI_ERROR_INVALID_PARAMETER;
  *name = found;
  return CUPTI_SUCCESS;
}

int vgs_cuptiSupportedDomains(size_t *domainCount, const uint32_t **domainTable) {
  static const uint32_t domains[] = {VGS_DOMAIN_DRIVER, VGS_DOMAIN_RUNTIME, VGS_DOMAIN_RESOURCE};
  if (!domainCount || !domainTable)
    return CUPTI_ERROR_INVALID_PARAMETER;
  *domainCount = sizeof domains / sizeof domains[0];
  *domainTable = domains;
  return CUPTI_SUCCESS;
}
