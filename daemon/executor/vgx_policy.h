/* Groups of functions that a session is denied (`deny` in its tenant's share). The description gives a function its
 * group (protocol/gen/dsl.py); the generated dispatcher asks here before it calls the backend, and for functions that
 * have a group alone, so that launches and copies are not tested at all. */
#ifndef VGX_POLICY_H
#define VGX_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "vgw_records.h"

struct vgx_session;

/* By group: its name in vgpud's configuration, and a description of its functions. Generated from protocol/. */
extern const char *const vgx_group_names[VGW_GROUP_COUNT];
extern const char *const vgx_group_words[VGW_GROUP_COUNT];

bool vgx_is_denied(const struct vgx_session *s, enum vgw_group group);

/* Count a call that is denied, and report it: to the client at the function's first such call in this session, to vgpud
 * at the 1st, 10th, 100th and so on. Returns CUDA_ERROR_NOT_PERMITTED. */
CUresult vgx_deny(struct vgx_session *s, enum vgw_opcode opcode, enum vgw_group group);

#endif
