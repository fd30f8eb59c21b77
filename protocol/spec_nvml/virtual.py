"""NVIDIA's own vGPU and MIG: a guest has none of their objects."""

from protocol.gen.nvml import INVALID_ARGUMENT, NOT_FOUND, fn

fn("nvmlComputeInstanceDestroy", "ci")
fn("nvmlComputeInstanceGetInfo", "ci info:ptr")
fn("nvmlComputeInstanceGetInfo_v2", "ci info:ptr")
fn("nvmlDeviceCreateGpuInstance", "device profileId:int gpuInstance:ptr")
fn("nvmlDeviceCreateGpuInstanceWithPlacement", "device profileId:int placement:ptr gpuInstance:ptr")
fn("nvmlDeviceGetActiveVgpus", "device vgpuCount:int* vgpuInstances:ptr?")
fn("nvmlDeviceGetComputeInstanceId", "device id:int*", refusal=INVALID_ARGUMENT)
fn("nvmlDeviceGetCreatableVgpus", "device vgpuCount:int* vgpuTypeIds:ptr?")
fn("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", "device handle:ptr", refusal=INVALID_ARGUMENT)
fn("nvmlDeviceGetGpuInstanceById", "device id:int gpuInstance:ptr", refusal=NOT_FOUND)
fn("nvmlDeviceGetGpuInstanceId", "device id:int*", refusal=INVALID_ARGUMENT)
fn("nvmlDeviceGetGpuInstancePossiblePlacements", "device profileId:int placements:ptr count:int*")
fn("nvmlDeviceGetGpuInstancePossiblePlacements_v2", "device profileId:int placements:ptr count:int*")
fn("nvmlDeviceGetGpuInstanceProfileInfo", "device profile:int info:ptr")
fn(
    "nvmlDeviceGetGpuInstanceProfileInfoByIdV",
    "device profileId:int info:nvmlGpuInstanceProfileInfo_v2_t@02000098/03000098",
)
fn("nvmlDeviceGetGpuInstanceProfileInfoV", "device profile:int info:nvmlGpuInstanceProfileInfo_v2_t@02000098/03000098")
fn("nvmlDeviceGetGpuInstanceRemainingCapacity", "device profileId:int count:int*")
fn("nvmlDeviceGetGpuInstances", "device profileId:int gpuInstances:ptr count:int*")
fn("nvmlDeviceGetHostVgpuMode", "device pHostVgpuMode:int*")
fn("nvmlDeviceGetMigDeviceHandleByIndex", "device index:int migDevice:ptr", refusal=NOT_FOUND)
fn("nvmlDeviceGetSupportedVgpus", "device vgpuCount:int* vgpuTypeIds:ptr?")
fn("nvmlDeviceGetVgpuCapabilities", "device capability:int capResult:int*")
fn("nvmlDeviceGetVgpuHeterogeneousMode", "device pHeterogeneousMode:nvmlVgpuHeterogeneousMode_t@01000008")
fn("nvmlDeviceGetVgpuInstancesUtilizationInfo", "device vgpuUtilInfo:nvmlVgpuInstancesUtilizationInfo_t@01000020")
fn("nvmlDeviceGetVgpuMetadata", "device pgpuMetadata:ptr bufferSize:int*")
fn(
    "nvmlDeviceGetVgpuProcessUtilization",
    "device lastSeenTimeStamp:long utilizationSamples_count:int* utilizationSamples:ptr?",
)
fn("nvmlDeviceGetVgpuProcessesUtilizationInfo", "device vgpuProcUtilInfo:nvmlVgpuProcessesUtilizationInfo_t@01000018")
fn("nvmlDeviceGetVgpuSchedulerCapabilities", "device pCapabilities:ptr")
fn("nvmlDeviceGetVgpuSchedulerLog", "device pSchedulerLog:ptr")
fn("nvmlDeviceGetVgpuSchedulerState", "device pSchedulerState:ptr")
fn(
    "nvmlDeviceGetVgpuTypeCreatablePlacements",
    "device vgpuTypeId:int pPlacementList:nvmlVgpuPlacementList_t@01000018/02000020",
)
fn(
    "nvmlDeviceGetVgpuTypeSupportedPlacements",
    "device vgpuTypeId:int pPlacementList:nvmlVgpuPlacementList_t@01000018/02000020",
)
fn(
    "nvmlDeviceGetVgpuUtilization",
    "device lastSeenTimeStamp:long sampleValType:int* utilizationSamples_count:int* utilizationSamples:ptr?",
)
fn("nvmlDeviceSetVgpuCapabilities", "device capability:int state:int")
fn("nvmlDeviceSetVgpuHeterogeneousMode", "device pHeterogeneousMode:nvmlVgpuHeterogeneousMode_t@01000008")
fn("nvmlDeviceSetVgpuSchedulerState", "device pSchedulerState:ptr")
fn("nvmlGetVgpuCompatibility", "vgpuMetadata:ptr pgpuMetadata:ptr compatibilityInfo:ptr")
fn("nvmlGetVgpuDriverCapabilities", "capability:int capResult:int*")
fn("nvmlGetVgpuVersion", "supported:ptr current:ptr")
fn("nvmlGpuInstanceCreateComputeInstance", "gi profileId:int computeInstance:ptr")
fn("nvmlGpuInstanceCreateComputeInstanceWithPlacement", "gi profileId:int placement:ptr computeInstance:ptr")
fn("nvmlGpuInstanceDestroy", "gi")
fn("nvmlGpuInstanceGetActiveVgpus", "gi pVgpuInstanceInfo:nvmlActiveVgpuInstanceInfo_t@01000010")
fn("nvmlGpuInstanceGetComputeInstanceById", "gi id:int computeInstance:ptr")
fn("nvmlGpuInstanceGetComputeInstancePossiblePlacements", "gi profileId:int placements:ptr count:int*")
fn("nvmlGpuInstanceGetComputeInstanceProfileInfo", "gi profile:int engProfile:int info:ptr")
fn(
    "nvmlGpuInstanceGetComputeInstanceProfileInfoV",
    "gi profile:int engProfile:int info:nvmlComputeInstanceProfileInfo_v2_t@02000088/0300008c",
)
fn("nvmlGpuInstanceGetComputeInstanceRemainingCapacity", "gi profileId:int count:int*")
fn("nvmlGpuInstanceGetComputeInstances", "gi profileId:int computeInstances:ptr count:int*")
fn("nvmlGpuInstanceGetCreatableVgpus", "gi pVgpus:nvmlVgpuTypeIdInfo_t@01000010")
fn("nvmlGpuInstanceGetInfo", "gi info:ptr")
fn("nvmlGpuInstanceGetVgpuHeterogeneousMode", "gi pHeterogeneousMode:nvmlVgpuHeterogeneousMode_t@01000008")
fn("nvmlGpuInstanceGetVgpuSchedulerLog", "gi pSchedulerLogInfo:nvmlVgpuSchedulerLogInfo_t@010025a0")
fn("nvmlGpuInstanceGetVgpuSchedulerState", "gi pSchedulerStateInfo:nvmlVgpuSchedulerStateInfo_t@01000018")
fn(
    "nvmlGpuInstanceGetVgpuTypeCreatablePlacements",
    "gi pCreatablePlacementInfo:nvmlVgpuCreatablePlacementInfo_t@01000020",
)
fn("nvmlGpuInstanceSetVgpuHeterogeneousMode", "gi pHeterogeneousMode:nvmlVgpuHeterogeneousMode_t@01000008")
fn("nvmlGpuInstanceSetVgpuSchedulerState", "gi pScheduler:nvmlVgpuSchedulerState_t@01000018")
fn("nvmlSetVgpuVersion", "vgpuVersion:ptr")
fn("nvmlVgpuInstanceClearAccountingPids", "vgpu")
fn("nvmlVgpuInstanceGetAccountingMode", "vgpu mode:int*")
fn("nvmlVgpuInstanceGetAccountingPids", "vgpu count:int* pids:ptr?")
fn("nvmlVgpuInstanceGetAccountingStats", "vgpu pid:int stats:ptr")
fn("nvmlVgpuInstanceGetEccMode", "vgpu eccMode:int*")
fn("nvmlVgpuInstanceGetEncoderCapacity", "vgpu encoderCapacity:int*")
fn("nvmlVgpuInstanceGetEncoderSessions", "vgpu sessionInfo_count:int* sessionInfo:ptr?")
fn("nvmlVgpuInstanceGetEncoderStats", "vgpu sessionCount:int* averageFps:int* averageLatency:int*")
fn("nvmlVgpuInstanceGetFBCSessions", "vgpu sessionInfo_count:int* sessionInfo:ptr?")
fn("nvmlVgpuInstanceGetFBCStats", "vgpu fbcStats:ptr")
fn("nvmlVgpuInstanceGetFbUsage", "vgpu fbUsage:long*")
fn("nvmlVgpuInstanceGetFrameRateLimit", "vgpu frameRateLimit:int*")
fn("nvmlVgpuInstanceGetGpuInstanceId", "vgpu gpuInstanceId:int*")
fn("nvmlVgpuInstanceGetGpuPciId", "vgpu vgpuPciId:ptr length:int*")
fn("nvmlVgpuInstanceGetLicenseInfo", "vgpu licenseInfo:ptr")
fn("nvmlVgpuInstanceGetLicenseInfo_v2", "vgpu licenseInfo:ptr")
fn("nvmlVgpuInstanceGetLicenseStatus", "vgpu licensed:int*")
fn("nvmlVgpuInstanceGetMdevUUID", "vgpu mdevUuid:text")
fn("nvmlVgpuInstanceGetMetadata", "vgpu vgpuMetadata:ptr bufferSize:int*")
fn("nvmlVgpuInstanceGetPlacementId", "vgpu pPlacement:nvmlVgpuPlacementId_t@01000008")
fn("nvmlVgpuInstanceGetRuntimeStateSize", "vgpu pState:nvmlVgpuRuntimeState_t@01000010")
fn("nvmlVgpuInstanceGetType", "vgpu vgpuTypeId:int*")
fn("nvmlVgpuInstanceGetUUID", "vgpu uuid:text")
fn("nvmlVgpuInstanceGetVmDriverVersion", "vgpu version:text")
fn("nvmlVgpuInstanceGetVmID", "vgpu vmId:text vmIdType:int*")
fn("nvmlVgpuInstanceSetEncoderCapacity", "vgpu encoderCapacity:int")
fn("nvmlVgpuTypeGetBAR1Info", "vgputype bar1Info:nvmlVgpuTypeBar1Info_t@01000010")
fn("nvmlVgpuTypeGetCapabilities", "vgputype capability:int capResult:int*")
fn("nvmlVgpuTypeGetClass", "vgputype vgpuTypeClass:ptr size:int*")
fn("nvmlVgpuTypeGetDeviceID", "vgputype deviceID:long* subsystemID:long*")
fn("nvmlVgpuTypeGetFbReservation", "vgputype fbReservation:long*")
fn("nvmlVgpuTypeGetFrameRateLimit", "vgputype frameRateLimit:int*")
fn("nvmlVgpuTypeGetFramebufferSize", "vgputype fbSize:long*")
fn("nvmlVgpuTypeGetGpuInstanceProfileId", "vgputype gpuInstanceProfileId:int*")
fn("nvmlVgpuTypeGetGspHeapSize", "vgputype gspHeapSize:long*")
fn("nvmlVgpuTypeGetLicense", "vgputype vgpuTypeLicenseString:text")
fn("nvmlVgpuTypeGetMaxInstances", "device vgpuTypeId:int vgpuInstanceCount:int*")
fn("nvmlVgpuTypeGetMaxInstancesPerGpuInstance", "pMaxInstance:nvmlVgpuTypeMaxInstance_t@0100000c")
fn("nvmlVgpuTypeGetMaxInstancesPerVm", "vgputype vgpuInstanceCountPerVm:int*")
fn("nvmlVgpuTypeGetName", "vgputype vgpuTypeName:ptr size:int*")
fn("nvmlVgpuTypeGetNumDisplayHeads", "vgputype numDisplayHeads:int*")
fn("nvmlVgpuTypeGetResolution", "vgputype displayIndex:int xdim:int* ydim:int*")
