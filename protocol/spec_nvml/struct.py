"""The structs that answers fill, declared afresh; tests/nvml compares them with those of nvidia-ml-py."""

from protocol.gen.nvml import struct

struct(
    "nvmlPciInfo_t",
    "busIdLegacy:char[16] domain:u32 bus:u32 device:u32 pciDeviceId:u32 pciSubSystemId:u32 busId:char[32]",
)
# The struct sizes of programs that call the older names: their structs end here, or with reserved words that are never
# written.
struct("nvmlPciInfo_v1_t", "busId:char[16] domain:u32 bus:u32 device:u32 pciDeviceId:u32")
struct("nvmlPciInfo_v2_t", "busId:char[16] domain:u32 bus:u32 device:u32 pciDeviceId:u32 pciSubSystemId:u32")
struct(
    "nvmlPciInfoExt_t",
    "version:u32 domain:u32 bus:u32 device:u32 pciDeviceId:u32 pciSubSystemId:u32 baseClass:u32 subClass:u32"
    " busId:char[32]",
)
struct("nvmlGpuFabricInfoV_t", "version:u32 clusterUuid:u8[16] status:u32 cliqueId:u32 state:u8 healthMask:u32")
struct("nvmlMemory_t", "total:u64 free:u64 used:u64")
struct("nvmlMemory_v2_t", "version:u32 total:u64 reserved:u64 free:u64 used:u64")
struct("nvmlBAR1Memory_t", "bar1Total:u64 bar1Free:u64 bar1Used:u64")
struct("nvmlUtilization_t", "gpu:u32 memory:u32")
struct("nvmlProcessInfo_v1_t", "pid:u32 usedGpuMemory:u64")
struct("nvmlProcessInfo_v2_t", "pid:u32 usedGpuMemory:u64 gpuInstanceId:u32 computeInstanceId:u32")
struct("nvmlEccErrorCounts_t", "l1Cache:u64 l2Cache:u64 deviceMemory:u64 registerFile:u64")
struct("nvmlRowRemapperHistogramValues_t", "max:u32 high:u32 partial:u32 low:u32 none:u32")
struct("nvmlViolationTime_t", "referenceTime:u64 violationTime:u64")
struct("nvmlTemperature_t", "version:u32 sensorType:u32 temperature:u32")
struct("nvmlMarginTemperature_t", "version:u32 marginTemperature:u32")
struct("nvmlFanSpeedInfo_t", "version:u32 fan:u32 speed:u32")
struct("nvmlDeviceAddressingMode_t", "version:u32 value:u32")
struct("nvmlUUID_t", "version:u32 type:u32 value:char[41]")
struct("nvmlHwbcEntry_t", "hwbcId:u32 firmwareVersion:char[32]")
struct(
    "nvmlFieldValue_t",
    "fieldId:u32 scopeId:u32 timestamp:u64 latencyUsec:u64 valueType:u32 nvmlReturn:u32 value:u64",
)
struct("nvmlConfComputeSystemState_t", "environment:u32 ccFeature:u32 devToolsMode:u32")
struct(
    "nvmlSystemConfComputeSettings_t",
    "version:u32 environment:u32 ccFeature:u32 devToolsMode:u32 multiGpuMode:u32",
)
struct("nvmlGpuFabricInfo_t", "clusterUuid:u8[16] status:u32 cliqueId:u32 state:u32")
struct(
    "nvmlAccountingStats_t",
    "gpuUtilization:u32 memoryUtilization:u32 maxMemoryUsage:u64 time:u64 startTime:u64 isRunning:u32 reserved:u32[5]",
)
struct("nvmlProcessUtilizationSample_t", "pid:u32 timeStamp:u64 smUtil:u32 memUtil:u32 encUtil:u32 decUtil:u32")
struct("nvmlSample_t", "timeStamp:u64 sampleValue:u64")
struct("nvmlClkMonStatus_t", "bGlobalStatus:u32 clkMonListSize:u32 clkMonList:u32[64]")
struct(
    "nvmlClockOffset_t",
    "version:u32 type:u32 pstate:u32 clockOffsetMHz:u32 minClockOffsetMHz:u32 maxClockOffsetMHz:u32",
)
struct("nvmlConfComputeMemSizeInfo_t", "protectedMemSizeKib:u64 unprotectedMemSizeKib:u64")
struct("nvmlGpuDynamicPstatesInfo_t", "flags:u32 utilization:u32[32]")
struct("nvmlGpuThermalSettings_t", "count:u32 sensor:u32[15]")
struct("nvmlFBCStats_t", "sessionsCount:u32 averageFPS:u32 averageLatency:u32")
struct(
    "nvmlEncoderSession_t",
    "sessionId:u32 pid:u32 vgpuInstance:u32 codecType:u32 hResolution:u32 vResolution:u32"
    " averageFps:u32 encodeLatency:u32",
)
struct(
    "nvmlFBCSession_t",
    "sessionId:u32 pid:u32 vgpuInstance:u32 displayOrdinal:u32 sessionType:u32 sessionFlags:u32"
    " hMaxResolution:u32 vMaxResolution:u32 hResolution:u32 vResolution:u32 averageFPS:u32 averageLatency:u32",
)
struct(
    "nvmlRemappedRowsInfo_v2_t",
    "corrActiveRemaps:u32 corrInactiveRemaps:u32 uncActiveRemaps:u32"
    " uncInactiveRemaps:u32 bPending:u32 bfailureOccurred:u32",
)
struct(
    "nvmlGpuInstanceProfileInfo_t",
    "id:u32 isP2pSupported:u32 sliceCount:u32 instanceCount:u32"
    " multiprocessorCount:u32 copyEngineCount:u32 decoderCount:u32 encoderCount:u32 jpegCount:u32 ofaCount:u32"
    " memorySizeMB:u64",
)
# Of this project: all states that a device can have (NVML_MAX_GPU_PERF_PSTATES), and one event of a device.
struct("vgpuPerformanceStates_t", "states:u32[16]")
struct(
    "vgpuDeviceEvent_t", "sequence:u64 eventType:u64 eventData:u64 device:u32 gpuInstanceId:u32 computeInstanceId:u32"
)
