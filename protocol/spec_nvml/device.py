"""Queries of a device: answered from the snapshot, live, or in the client."""

from protocol.gen.nvml import LIVE, LOCAL, SNAPSHOT, fn

fn("nvmlDeviceClearFieldValues", "device valuesCount:int values:nvmlFieldValue_t*", LOCAL)
fn("nvmlDeviceGetAccountingBufferSize", "device bufferSize:int*", LIVE)
fn("nvmlDeviceGetAccountingMode", "device mode:int*", LIVE)
fn("nvmlDeviceGetAccountingPids", "device pids:int[]", LIVE)
fn("nvmlDeviceGetAccountingStats", "device pid:int stats:nvmlAccountingStats_t*", LIVE)
fn("nvmlDeviceGetAdaptiveClockInfoStatus", "device adaptiveClockStatus:int*", LIVE)
fn("nvmlDeviceGetAddressingMode", "device mode:nvmlDeviceAddressingMode_t@01000008", SNAPSHOT)
fn("nvmlDeviceGetApplicationsClock", "device clockType:int clockMHz:int*", LIVE)
fn("nvmlDeviceGetArchitecture", "device arch:int*", SNAPSHOT)
fn("nvmlDeviceGetAutoBoostedClocksEnabled", "device isEnabled:int* defaultIsEnabled:int*", LIVE)
fn("nvmlDeviceGetBAR1MemoryInfo", "device bar1Memory:nvmlBAR1Memory_t*", LIVE)
fn("nvmlDeviceGetBoardId", "device boardId:int*", SNAPSHOT)
fn("nvmlDeviceGetBoardPartNumber", "device partNumber:text", SNAPSHOT)
fn("nvmlDeviceGetBrand", "device type:int*", SNAPSHOT)
fn("nvmlDeviceGetBusType", "device type:int*", SNAPSHOT)
fn("nvmlDeviceGetC2cModeInfoV", "device c2cModeInfo:int*", SNAPSHOT)
fn("nvmlDeviceGetCapabilities", "device caps:nvmlDeviceCapabilities_t@01000008", LIVE)
fn("nvmlDeviceGetClkMonStatus", "device status:nvmlClkMonStatus_t*", LIVE)
fn("nvmlDeviceGetClock", "device clockType:int clockId:int clockMHz:int*", LIVE)
fn("nvmlDeviceGetClockInfo", "device type:int clock:int*", LIVE)
fn("nvmlDeviceGetClockOffsets", "device info:nvmlClockOffset_t@01000018+2", LIVE)
fn("nvmlDeviceGetComputeMode", "device mode:int*", SNAPSHOT)
fn("nvmlDeviceGetComputeRunningProcesses", "device infos:nvmlProcessInfo_v1_t[]", LIVE)
fn("nvmlDeviceGetComputeRunningProcesses_v2", "device infos:nvmlProcessInfo_v2_t[]", LIVE)
fn("nvmlDeviceGetComputeRunningProcesses_v3", "device infos:nvmlProcessInfo_v2_t[]", LIVE)
fn("nvmlDeviceGetConfComputeMemSizeInfo", "device memInfo:nvmlConfComputeMemSizeInfo_t*", LIVE)
fn("nvmlDeviceGetConfComputeProtectedMemoryUsage", "device memory:nvmlMemory_t*", LIVE)
fn("nvmlDeviceGetCoolerInfo", "device coolerInfo:nvmlCoolerInfo_t@01000010+1", LIVE)
fn("nvmlDeviceGetCount", "deviceCount:int*", LOCAL, body="nvmlDeviceGetCount_v2")
fn("nvmlDeviceGetCount_v2", "deviceCount:int*", LOCAL)
fn("nvmlDeviceGetCudaComputeCapability", "device major:int* minor:int*", SNAPSHOT)
fn("nvmlDeviceGetCurrPcieLinkGeneration", "device currLinkGen:int*", LIVE)
fn("nvmlDeviceGetCurrPcieLinkWidth", "device currLinkWidth:int*", LIVE)
fn("nvmlDeviceGetCurrentClockFreqs", "device currentClockFreqs:nvmlDeviceCurrentClockFreqs_t@01000804", LIVE)
fn("nvmlDeviceGetCurrentClocksEventReasons", "device clocksEventReasons:long*", LIVE)
fn("nvmlDeviceGetCurrentClocksThrottleReasons", "device clocksThrottleReasons:long*", LIVE)
fn("nvmlDeviceGetDecoderUtilization", "device utilization:int* samplingPeriodUs:int*", LIVE)
fn("nvmlDeviceGetDefaultApplicationsClock", "device clockType:int clockMHz:int*", LIVE)
fn("nvmlDeviceGetDefaultEccMode", "device defaultMode:int*", SNAPSHOT)
fn("nvmlDeviceGetDetailedEccErrors", "device errorType:int counterType:int eccCounts:nvmlEccErrorCounts_t*", LIVE)
fn("nvmlDeviceGetDisplayActive", "device isActive:int*", SNAPSHOT)
fn("nvmlDeviceGetDisplayMode", "device display:int*", SNAPSHOT)
fn(
    "nvmlDeviceGetDramEncryptionMode",
    "device current:nvmlDramEncryptionInfo_t@01000008 pending:nvmlDramEncryptionInfo_t@01000008",
    LIVE,
)
fn("nvmlDeviceGetDynamicPstatesInfo", "device pDynamicPstatesInfo:nvmlGpuDynamicPstatesInfo_t*", LIVE)
fn("nvmlDeviceGetEccMode", "device current:int* pending:int*", SNAPSHOT)
fn("nvmlDeviceGetEncoderCapacity", "device encoderQueryType:int encoderCapacity:int*", LIVE)
fn("nvmlDeviceGetEncoderSessions", "device sessionInfos:nvmlEncoderSession_t[]", LIVE)
fn("nvmlDeviceGetEncoderStats", "device sessionCount:int* averageFps:int* averageLatency:int*", LIVE)
fn("nvmlDeviceGetEncoderUtilization", "device utilization:int* samplingPeriodUs:int*", LIVE)
fn("nvmlDeviceGetEnforcedPowerLimit", "device limit:int*", LIVE)
fn("nvmlDeviceGetFBCSessions", "device sessionInfo:nvmlFBCSession_t[]", LIVE)
fn("nvmlDeviceGetFBCStats", "device fbcStats:nvmlFBCStats_t*", LIVE)
fn("nvmlDeviceGetFanControlPolicy_v2", "device fan:int policy:int*", LIVE)
fn("nvmlDeviceGetFanSpeed", "device speed:int*", LIVE)
fn("nvmlDeviceGetFanSpeedRPM", "device fanSpeed:nvmlFanSpeedInfo_t@0100000c+1", LIVE)
fn("nvmlDeviceGetFanSpeed_v2", "device fan:int speed:int*", LIVE)
fn(
    "nvmlDeviceGetFieldValues",
    "device valuesCount:int values:nvmlFieldValue_t*",
    LOCAL,
    asks="device fieldId:int scopeId:int value:nvmlFieldValue_t*",
)
fn("nvmlDeviceGetGpcClkMinMaxVfOffset", "device minOffset:int* maxOffset:int*", LIVE)
fn("nvmlDeviceGetGpcClkVfOffset", "device offset:int*", LIVE)
fn("nvmlDeviceGetGpuFabricInfo", "device gpuFabricInfo:nvmlGpuFabricInfo_t*", LIVE)
fn("nvmlDeviceGetGpuFabricInfoV", "device gpuFabricInfo:nvmlGpuFabricInfoV_t@02000024/03000028", LIVE)
fn("nvmlDeviceGetGpuInstanceProfileInfo", "device profile:int info:nvmlGpuInstanceProfileInfo_t*", LIVE)
fn(
    "nvmlDeviceGetGpuInstanceProfileInfoByIdV",
    "device profileId:int info:nvmlGpuInstanceProfileInfo_v2_t@02000098/03000098",
    LIVE,
)
fn(
    "nvmlDeviceGetGpuInstanceProfileInfoV",
    "device profile:int info:nvmlGpuInstanceProfileInfo_v2_t@02000098/03000098",
    LIVE,
)
fn("nvmlDeviceGetGpuInstanceRemainingCapacity", "device profileId:int count:int*", LIVE)
fn("nvmlDeviceGetGpuMaxPcieLinkGeneration", "device maxLinkGenDevice:int*", SNAPSHOT)
fn("nvmlDeviceGetGraphicsRunningProcesses", "device infos:nvmlProcessInfo_v1_t[]", LIVE)
fn("nvmlDeviceGetGraphicsRunningProcesses_v2", "device infos:nvmlProcessInfo_v2_t[]", LIVE)
fn("nvmlDeviceGetGraphicsRunningProcesses_v3", "device infos:nvmlProcessInfo_v2_t[]", LIVE)
fn("nvmlDeviceGetGspFirmwareMode", "device isEnabled:int* defaultMode:int*", SNAPSHOT)
fn("nvmlDeviceGetGspFirmwareVersion", "device version:text80", SNAPSHOT)
fn("nvmlDeviceGetHandleByIndex", "index:int handle:ptr", LOCAL, body="nvmlDeviceGetHandleByIndex_v2")
fn("nvmlDeviceGetHandleByIndex_v2", "index:int handle:ptr", LOCAL)
fn("nvmlDeviceGetHandleByPciBusId", "pciBusId:cstr handle:ptr", LOCAL, body="nvmlDeviceGetHandleByPciBusId_v2")
fn("nvmlDeviceGetHandleByPciBusId_v2", "pciBusId:cstr handle:ptr", LOCAL)
fn("nvmlDeviceGetHandleBySerial", "serial:cstr handle:ptr", LOCAL)
fn("nvmlDeviceGetHandleByUUID", "uuid:cstr handle:ptr", LOCAL)
fn("nvmlDeviceGetHandleByUUIDV", "uuid:nvmlUUID_t@01000034 handle:ptr", LOCAL)
fn("nvmlDeviceGetIndex", "device index:int*", LOCAL)
fn("nvmlDeviceGetInforomConfigurationChecksum", "device checksum:int*", LIVE)
fn("nvmlDeviceGetInforomImageVersion", "device version:text", LIVE)
fn("nvmlDeviceGetInforomVersion", "device object:int version:text", LIVE)
fn("nvmlDeviceGetJpgUtilization", "device utilization:int* samplingPeriodUs:int*", LIVE)
fn("nvmlDeviceGetLastBBXFlushTime", "device timestamp:long* durationUs:long*", LIVE)
fn("nvmlDeviceGetMPSComputeRunningProcesses", "device infos:nvmlProcessInfo_v1_t[]", LIVE)
fn("nvmlDeviceGetMPSComputeRunningProcesses_v2", "device infos:nvmlProcessInfo_v2_t[]", LIVE)
fn("nvmlDeviceGetMPSComputeRunningProcesses_v3", "device infos:nvmlProcessInfo_v2_t[]", LIVE)
fn("nvmlDeviceGetMarginTemperature", "device marginTempInfo:nvmlMarginTemperature_t@01000008", LIVE)
fn("nvmlDeviceGetMaxClockInfo", "device type:int clock:int*", SNAPSHOT, domain=4)
fn("nvmlDeviceGetMaxCustomerBoostClock", "device clockType:int clockMHz:int*", SNAPSHOT, domain=4)
fn("nvmlDeviceGetMaxMigDeviceCount", "device count:int*", SNAPSHOT)
fn("nvmlDeviceGetMaxPcieLinkGeneration", "device maxLinkGen:int*", SNAPSHOT)
fn("nvmlDeviceGetMaxPcieLinkWidth", "device maxLinkWidth:int*", SNAPSHOT)
fn("nvmlDeviceGetMemClkMinMaxVfOffset", "device minOffset:int* maxOffset:int*", LIVE)
fn("nvmlDeviceGetMemClkVfOffset", "device offset:int*", LIVE)
fn("nvmlDeviceGetMemoryBusWidth", "device busWidth:int*", SNAPSHOT)
fn("nvmlDeviceGetMemoryErrorCounter", "device errorType:int counterType:int locationType:int count:long*", LIVE)
fn("nvmlDeviceGetMemoryInfo", "device memory:nvmlMemory_t*", LIVE)
fn("nvmlDeviceGetMemoryInfo_v2", "device memory:nvmlMemory_v2_t@02000028", LIVE)
fn("nvmlDeviceGetMigMode", "device currentMode:int* pendingMode:int*", SNAPSHOT)
fn("nvmlDeviceGetMinMaxClockOfPState", "device type:int pstate:int minClockMHz:int* maxClockMHz:int*", LIVE)
fn("nvmlDeviceGetMinMaxFanSpeed", "device minSpeed:int* maxSpeed:int*", LIVE)
fn("nvmlDeviceGetMultiGpuBoard", "device multiGpuBool:int*", SNAPSHOT)
fn("nvmlDeviceGetName", "device name:text", SNAPSHOT)
fn("nvmlDeviceGetNumFans", "device numFans:int*", SNAPSHOT)
fn("nvmlDeviceGetNumGpuCores", "device numCores:int*", SNAPSHOT)
fn("nvmlDeviceGetNvLinkCapability", "device link:int capability:int capResult:int*", LIVE)
fn("nvmlDeviceGetNvLinkErrorCounter", "device link:int counter:int counterValue:long*", LIVE)
fn("nvmlDeviceGetNvLinkInfo", "device info:nvmlNvLinkInfo_t@01000008/0200064c", LIVE)
fn("nvmlDeviceGetNvLinkRemoteDeviceType", "device link:int pNvLinkDeviceType:int*", LIVE)
fn("nvmlDeviceGetNvLinkRemotePciInfo", "device link:int pci:nvmlPciInfo_t*", LIVE)
fn("nvmlDeviceGetNvLinkRemotePciInfo_v2", "device link:int pci:nvmlPciInfo_t*", LIVE)
fn("nvmlDeviceGetNvLinkState", "device link:int isActive:int*", LIVE)
fn("nvmlDeviceGetNvLinkUtilizationCounter", "device link:int counter:int rxcounter:long* txcounter:long*", LIVE)
fn("nvmlDeviceGetNvLinkVersion", "device link:int version:int*", LIVE)
fn("nvmlDeviceGetNvlinkBwMode", "device getBwMode:nvmlNvlinkGetBwMode_t@0100000c", LIVE)
fn("nvmlDeviceGetNvlinkSupportedBwModes", "device supportedBwMode:nvmlNvlinkSupportedBwModes_t@0100001c", LIVE)
fn("nvmlDeviceGetOfaUtilization", "device utilization:int* samplingPeriodUs:int*", LIVE)
fn(
    "nvmlDeviceGetP2PStatus",
    "device device2:device p2pIndex:int p2pStatus:int*",
    LOCAL,
    asks="device device2:int p2pIndex:int p2pStatus:int*",
)
fn("nvmlDeviceGetPciInfo", "device pci:nvmlPciInfo_v1_t*", SNAPSHOT)
fn("nvmlDeviceGetPciInfoExt", "device pci:nvmlPciInfoExt_t@01000040", SNAPSHOT)
fn("nvmlDeviceGetPciInfo_v2", "device pci:nvmlPciInfo_v2_t*", SNAPSHOT)
fn("nvmlDeviceGetPciInfo_v3", "device pci:nvmlPciInfo_t*", SNAPSHOT)
fn("nvmlDeviceGetPcieLinkMaxSpeed", "device maxSpeed:int*", SNAPSHOT)
fn("nvmlDeviceGetPcieReplayCounter", "device value:int*", LIVE)
fn("nvmlDeviceGetPcieSpeed", "device pcieSpeed:int*", LIVE)
fn("nvmlDeviceGetPcieThroughput", "device counter:int value:int*", LIVE)
fn("nvmlDeviceGetPerformanceModes", "device perfModes:nvmlDevicePerfModes_t@01000804", LIVE)
fn("nvmlDeviceGetPerformanceState", "device pState:int*", LIVE)
fn("nvmlDeviceGetPersistenceMode", "device mode:int*", LIVE)
fn("nvmlDeviceGetPowerManagementDefaultLimit", "device defaultLimit:int*", SNAPSHOT)
fn("nvmlDeviceGetPowerManagementLimit", "device limit:int*", LIVE)
fn("nvmlDeviceGetPowerManagementLimitConstraints", "device minLimit:int* maxLimit:int*", SNAPSHOT)
fn("nvmlDeviceGetPowerManagementMode", "device mode:int*", LIVE)
fn("nvmlDeviceGetPowerSource", "device powerSource:int*", LIVE)
fn("nvmlDeviceGetPowerState", "device pState:int*", LIVE)
fn("nvmlDeviceGetPowerUsage", "device power:int*", LIVE)
fn(
    "nvmlDeviceGetProcessUtilization",
    "device utilization:ptr? processSamplesCount:int* lastSeenTimeStamp:long",
    LOCAL,
    asks="device lastSeenTimeStamp:long utilization:nvmlProcessUtilizationSample_t[]",
)
fn("nvmlDeviceGetRemappedRows", "device corrRows:int* uncRows:int* isPending:int* failureOccurred:int*", LIVE)
fn("nvmlDeviceGetRemappedRows_v2", "device info:nvmlRemappedRowsInfo_v2_t*", LIVE)
fn("nvmlDeviceGetRepairStatus", "device repairStatus:nvmlRepairStatus_t@0100000c", LIVE)
fn("nvmlDeviceGetRetiredPages", "device cause:int addresses:long[]", LIVE)
fn("nvmlDeviceGetRetiredPagesPendingStatus", "device isPending:int*", LIVE)
fn("nvmlDeviceGetRowRemapperHistogram", "device values:nvmlRowRemapperHistogramValues_t*", LIVE)
fn(
    "nvmlDeviceGetSamples",
    "device type:int lastSeenTimeStamp:long sampleValType:int* samples_count:int* samples:ptr?",
    LOCAL,
    asks="device type:int lastSeenTimeStamp:long sampleValType:int* samples:nvmlSample_t[]",
)
fn("nvmlDeviceGetSramEccErrorStatus", "device status:nvmlEccSramErrorStatus_t@01000068", LIVE)
fn("nvmlDeviceGetSupportedClocksEventReasons", "device supportedClocksEventReasons:long*", SNAPSHOT)
fn("nvmlDeviceGetSupportedClocksThrottleReasons", "device supportedClocksThrottleReasons:long*", SNAPSHOT)
fn("nvmlDeviceGetSupportedEventTypes", "device eventTypes:long*", SNAPSHOT)
fn("nvmlDeviceGetSupportedGraphicsClocks", "device memoryClockMHz:int clocksMHz:int[]", LIVE)
fn("nvmlDeviceGetSupportedMemoryClocks", "device clocksMHz:int[]", LIVE)
fn(
    "nvmlDeviceGetSupportedPerformanceStates",
    "device pstates:ptr size:int",
    LOCAL,
    asks="device pstates:vgpuPerformanceStates_t*",
)
fn("nvmlDeviceGetTargetFanSpeed", "device fan:int targetSpeed:int*", LIVE)
fn("nvmlDeviceGetTemperature", "device sensorType:int temp:int*", LIVE)
fn("nvmlDeviceGetTemperatureThreshold", "device thresholdType:int temp:int*", SNAPSHOT, domain=8)
fn("nvmlDeviceGetTemperatureV", "device temperature:nvmlTemperature_t@0100000c+1", LIVE)
fn("nvmlDeviceGetThermalSettings", "device sensorIndex:int pThermalSettings:nvmlGpuThermalSettings_t*", LIVE)
fn(
    "nvmlDeviceGetTopologyCommonAncestor",
    "device device2:device pathInfo:int*",
    LOCAL,
    asks="device device2:int pathInfo:int*",
)
fn("nvmlDeviceGetTotalEccErrors", "device errorType:int counterType:int eccCounts:long*", LIVE)
fn("nvmlDeviceGetTotalEnergyConsumption", "device energy:long*", LIVE)
fn("nvmlDeviceGetUUID", "device uuid:text", SNAPSHOT)
fn("nvmlDeviceGetUnrepairableMemoryFlag_v1", "device info:nvmlUnrepairableMemory_t@01000008", LIVE)
fn("nvmlDeviceGetUtilizationRates", "device utilization:nvmlUtilization_t*", LIVE)
fn("nvmlDeviceGetVbiosVersion", "device version:text", SNAPSHOT)
fn("nvmlDeviceGetViolationStatus", "device perfPolicyType:int violTime:nvmlViolationTime_t*", LIVE)
fn("nvmlDeviceGetVirtualizationMode", "device pVirtualMode:int*", SNAPSHOT)
fn("nvmlDeviceIsMigDeviceHandle", "device isMigDevice:int*", SNAPSHOT)
fn("nvmlDeviceOnSameBoard", "device device2:device onSameBoard:int*", LOCAL, asks="device device2:int onSameBoard:int*")
fn("nvmlDeviceRegisterEvents", "device eventTypes:long set:ptr", LOCAL)
fn(
    "nvmlDeviceWorkloadPowerProfileGetCurrentProfiles",
    "device currentProfiles:nvmlWorkloadPowerProfileCurrentProfiles_t@01000064",
    LIVE,
)
fn(
    "nvmlDeviceWorkloadPowerProfileGetProfilesInfo",
    "device profilesInfo:nvmlWorkloadPowerProfileProfilesInfo_t@01002bf8",
    LIVE,
)
