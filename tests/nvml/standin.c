/* A host's libnvidia-ml for tests of what vgpud forwards: two devices, found by any UUID in the order of the questions,
 * and answers that can be told apart. Signatures as in nvml.h of release 580. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, TIMEOUT = 10 };
enum { DEVICES = 2, MIXED_EVENTS = 1 | 2 | 4 | 8 };

static char uuids[DEVICES][64];
static int pipe_ends[2];

static long index_of(const char (*device)[64]) { return device - (const char (*)[64])uuids; }

int nvmlInit_v2(void) { return pipe(pipe_ends); }

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
  for (int i = 0; i < DEVICES; i++)
    if (!uuids[i][0] || !strcmp(uuids[i], uuid)) {
      snprintf(uuids[i], sizeof uuids[i], "%s", uuid);
      *device = uuids[i];
      return SUCCESS;
    }
  return NOT_FOUND;
}

struct field_value {
  unsigned field, scope;
  long long timestamp, latency_us;
  unsigned type, result;
  unsigned long long value;
};

/* Field 90 is refused by its own result, field 91 by the call's. */
int nvmlDeviceGetFieldValues(void *device, int count, struct field_value *values) {
  for (int i = 0; i < count; i++) {
    if (values[i].field == 91)
      return INVALID_ARGUMENT;
    values[i].timestamp = 5;
    values[i].type = 3;
    values[i].result = values[i].field == 90 ? NOT_SUPPORTED : SUCCESS;
    values[i].value = values[i].field * 1000ull + values[i].scope * 10 + (unsigned)index_of(device);
  }
  return SUCCESS;
}

struct sample {
  unsigned long long time, value;
};

int nvmlDeviceGetSamples(void *device, int type, unsigned long long since, unsigned *value_type, unsigned *count,
                         struct sample *samples) {
  (void)device;
  if (!samples || *count < 3)
    return INVALID_ARGUMENT;
  *value_type = 1;
  *count = 3;
  for (unsigned i = 0; i < 3; i++)
    samples[i] = (struct sample){.time = since + i, .value = (unsigned)type * 100 + i};
  return SUCCESS;
}

struct process_sample {
  unsigned pid;
  unsigned long long time;
  unsigned sm, memory, encoder, decoder;
};

int nvmlDeviceGetProcessUtilization(void *device, struct process_sample *samples, unsigned *count,
                                    unsigned long long since) {
  (void)device;
  for (unsigned i = 0; i < 3; i++)
    samples[i] = (struct process_sample){.pid = 900 + i, .time = since, .sm = 10 + i};
  *count = 3;
  return SUCCESS;
}

int nvmlDeviceGetSupportedPerformanceStates(void *device, unsigned *states, unsigned nbytes) {
  (void)device;
  for (unsigned i = 0; i < nbytes / sizeof *states; i++)
    states[i] = i == 0 ? 2 : i == 1 ? 0 : 32;
  return SUCCESS;
}

int nvmlDeviceGetTopologyCommonAncestor(void *device, void *other, unsigned *path) {
  *path = (unsigned)(10 + 10 * index_of(device) + index_of(other));
  return SUCCESS;
}

int nvmlDeviceGetSupportedMemoryClocks(void *device, unsigned *count, unsigned *clocks) {
  (void)device;
  if (*count < 2)
    return INSUFFICIENT_SIZE;
  clocks[0] = 2619;
  clocks[1] = 1593;
  *count = 2;
  return SUCCESS;
}

int nvmlDeviceGetAccountingPids(void *device, unsigned *count, unsigned *pids) {
  (void)device;
  *count = 3;
  for (unsigned i = 0; i < 3; i++)
    pids[i] = 900 + i;
  return SUCCESS;
}

struct accounting {
  unsigned gpu, memory;
  unsigned long long most_memory, time, start;
  unsigned running, reserved[5];
};

int nvmlDeviceGetAccountingStats(void *device, unsigned pid, struct accounting *stats) {
  (void)device;
  *stats = (struct accounting){.gpu = pid, .running = 1};
  return SUCCESS;
}

struct offset {
  unsigned version, type, state;
  int now, least, most;
};

int nvmlDeviceGetClockOffsets(void *device, struct offset *offset) {
  (void)device;
  offset->now = -(int)(offset->type * 10 + offset->state);
  return SUCCESS;
}

struct event {
  void *device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};

int nvmlDeviceGetSupportedEventTypes(void *device, unsigned long long *types) {
  (void)device;
  *types = MIXED_EVENTS;
  return SUCCESS;
}

int nvmlEventSetCreate(void **set) {
  *set = pipe_ends;
  return SUCCESS;
}

int nvmlDeviceRegisterEvents(void *device, unsigned long long types, void *set) {
  (void)device;
  return types == MIXED_EVENTS && set == pipe_ends ? SUCCESS : INVALID_ARGUMENT;
}

int nvmlEventSetWait_v2(void *set, struct event *event, unsigned timeout_ms) {
  (void)timeout_ms;
  (void)set;
  return read(pipe_ends[0], event, sizeof *event) == sizeof *event ? SUCCESS : TIMEOUT;
}

/* For the test: an event happens. */
int standin_event(unsigned device, unsigned long long type, unsigned long long data) {
  struct event event = {.device = uuids[device], .type = type, .data = data, .gpu_instance = 7, .compute_instance = 8};
  return write(pipe_ends[1], &event, sizeof event) == sizeof event;
}
