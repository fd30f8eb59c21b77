#include "vgs_call.h"

_Thread_local uint32_t vgs_thread_context_id;

_Thread_local bool vgs_thread_serves;

_Thread_local uint64_t vgs_thread_correlation;
