/* The private table NVIDIA's own nvidia-smi asks for, as observed of release 580: word 0 is its size in bytes, the
 * others are functions. Those that nvidia-smi needs for its table, -L, -q, --query-gpu, topo and pmon are served, all
 * others refuse. */
#include "vgs_nvml.h"
#include "vgs_nvml_device.h"
#include "vgs_nvml_init.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TABLE_NBYTES = 2160, TABLE_WORDS = TABLE_NBYTES / sizeof(void *), PROCESS_MAX = 4096 };

static const uint8_t table_id[16] = {0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e,
                                     0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4};

static nvmlReturn_t refuse(void) { return NVML_ERROR_NOT_SUPPORTED; }

/* Called with each line that nvidia-smi prints. */
static nvmlReturn_t line_printed(void) { return NVML_SUCCESS; }

/* The legacy PCI address of a device, into 16 bytes. */
static nvmlReturn_t legacy_pci(unsigned index, char *text) {
  nvmlReturn_t result = vgs_nvml_enter();
  if (result)
    return result;
  if (!text || index >= vgs_nvml_device_count())
    result = NVML_ERROR_INVALID_ARGUMENT;
  else
    snprintf(text, 16, "%s", vgs_nvml_pci(index));
  vgs_nvml_leave();
  return result;
}

static nvmlReturn_t is_monitorable(nvmlDevice_t device, unsigned *answer) {
  nvmlReturn_t result = vgs_nvml_enter();
  if (result)
    return result;
  if (!answer || vgs_nvml_index(device) < 0)
    result = NVML_ERROR_INVALID_ARGUMENT;
  else
    *answer = 1;
  vgs_nvml_leave();
  return result;
}

/* Per-process utilisation is not measured here; NOT_FOUND is the answer of an idle device, which tools print as a dash.
 * */
static nvmlReturn_t no_samples(void) { return NVML_ERROR_NOT_FOUND; }

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t, unsigned *, nvmlProcessInfo_v2_t *);
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t, unsigned *, nvmlProcessInfo_v2_t *);
nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t, unsigned *, nvmlProcessInfo_v2_t *);
nvmlReturn_t nvmlDeviceGetBoardPartNumber(nvmlDevice_t, char *, unsigned);

/* One process as this table's lists hold it. */
struct record {
  unsigned pid;
  unsigned long long memory_nbytes;
  unsigned gpu_instance, compute_instance;
  unsigned long long unknown; /* 0 in every record seen */
  char name[4096];            /* the command line; its first word is enough for what is printed */
};
_Static_assert(sizeof(struct record) == 4128, "as observed of release 580");

/* Processes of one kind. `count`: capacity, then number; INSUFFICIENT_SIZE if it is too small, as in public lists. */
static nvmlReturn_t processes(nvmlReturn_t (*list)(nvmlDevice_t, unsigned *, nvmlProcessInfo_v2_t *),
                              nvmlDevice_t device, unsigned *count, struct record *records) {
  if (!count || (*count && !records))
    return NVML_ERROR_INVALID_ARGUMENT;
  unsigned capacity = *count < PROCESS_MAX ? *count : PROCESS_MAX;
  nvmlProcessInfo_v2_t *infos = calloc(capacity ? capacity : 1, sizeof *infos);
  if (!infos)
    return NVML_ERROR_MEMORY;
  *count = capacity;
  nvmlReturn_t result = list(device, count, infos);
  for (unsigned i = 0; !result && i < *count; i++) {
    records[i] = (struct record){.pid = infos[i].pid,
                                 .memory_nbytes = infos[i].usedGpuMemory,
                                 .gpu_instance = infos[i].gpuInstanceId,
                                 .compute_instance = infos[i].computeInstanceId};
    vgs_nvmlSystemGetProcessName(infos[i].pid, records[i].name, sizeof records[i].name);
  }
  free(infos);
  return result;
}

static nvmlReturn_t compute_processes(nvmlDevice_t device, unsigned *count, struct record *records) {
  return processes(nvmlDeviceGetComputeRunningProcesses_v3, device, count, records);
}
static nvmlReturn_t graphics_processes(nvmlDevice_t device, unsigned *count, struct record *records) {
  return processes(nvmlDeviceGetGraphicsRunningProcesses_v3, device, count, records);
}
static nvmlReturn_t mps_processes(nvmlDevice_t device, unsigned *count, struct record *records) {
  return processes(nvmlDeviceGetMPSComputeRunningProcesses_v3, device, count, records);
}

static nvmlReturn_t part_number(nvmlDevice_t device, char *board, unsigned length, char *part) {
  (void)board;
  return part ? nvmlDeviceGetBoardPartNumber(device, part, length) : NVML_ERROR_INVALID_ARGUMENT;
}

static uintptr_t table[TABLE_WORDS];

static void fill_table(void) {
  const struct {
    unsigned index;
    uintptr_t function;
  } served[] = {
      {26, (uintptr_t)line_printed},   {72, (uintptr_t)is_monitorable},     {81, (uintptr_t)legacy_pci},
      {145, (uintptr_t)no_samples},    {213, (uintptr_t)compute_processes}, {214, (uintptr_t)graphics_processes},
      {215, (uintptr_t)mps_processes}, {231, (uintptr_t)part_number},
  };
  for (unsigned i = 1; i < TABLE_WORDS; i++)
    table[i] = (uintptr_t)refuse;
  table[0] = TABLE_NBYTES;
  for (unsigned i = 0; i < sizeof served / sizeof *served; i++)
    table[served[i].index] = served[i].function;
}

nvmlReturn_t vgs_nvmlInternalGetExportTable(void *out, void *id) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  if (!out || !id)
    return NVML_ERROR_INVALID_ARGUMENT;
  *(const void **)out = NULL; /* NULL on refusal, too: callers test the result or the pointer */
  if (memcmp(id, table_id, sizeof table_id) != 0)
    return NVML_ERROR_FUNCTION_NOT_FOUND;
  pthread_once(&once, fill_table);
  *(const void **)out = table;
  return NVML_SUCCESS;
}
