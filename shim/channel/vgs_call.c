#include "vgs_call.h"

_Thread_local uint32_t vgs_thread_context_id;
