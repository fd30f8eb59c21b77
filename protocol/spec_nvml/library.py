"""The library itself, the system, units and events."""

from protocol.gen.nvml import LOCAL, SNAPSHOT, fn

fn("nvmlErrorString", "result:int", LOCAL, needs_init=False, returns="const char *")
fn("nvmlEventSetCreate", "set:ptr", LOCAL)
fn("nvmlEventSetFree", "set:ptr", LOCAL)
fn("nvmlEventSetWait", "set:ptr data:ptr timeoutms:int", LOCAL, needs_init=False)
fn(
    "nvmlEventSetWait_v2",
    "set:ptr data:ptr timeoutms:int",
    LOCAL,
    needs_init=False,
    asks="after:long next:long* events:vgpuDeviceEvent_t[]",
)
fn("nvmlGetBlacklistDeviceCount", "deviceCount:int*", SNAPSHOT)
fn("nvmlGetBlacklistDeviceInfoByIndex", "index:int info:ptr")
fn("nvmlGetExcludedDeviceCount", "deviceCount:int*", SNAPSHOT)
fn("nvmlGetExcludedDeviceInfoByIndex", "index:int info:ptr")
fn("nvmlInit", "", LOCAL, needs_init=False, body="nvmlInit_v2")
fn("nvmlInitWithFlags", "flags:int", LOCAL, needs_init=False)
fn("nvmlInit_v2", "", LOCAL, needs_init=False)
fn("nvmlInternalGetExportTable", "table:ptr id:ptr", LOCAL, needs_init=False)
fn("nvmlShutdown", "", LOCAL, needs_init=False)
fn("nvmlSystemEventSetCreate", "request:nvmlSystemEventSetCreateRequest_t@01000010")
fn("nvmlSystemEventSetFree", "request:nvmlSystemEventSetFreeRequest_t@01000010")
fn("nvmlSystemEventSetWait", "request:nvmlSystemEventSetWaitRequest_t@01000020")
fn("nvmlSystemGetConfComputeCapabilities", "capabilities:ptr")
fn("nvmlSystemGetConfComputeGpusReadyState", "isAcceptingWork:int*")
fn("nvmlSystemGetConfComputeKeyRotationThresholdInfo", "pKeyRotationThrInfo:ptr")
fn("nvmlSystemGetConfComputeSettings", "settings:nvmlSystemConfComputeSettings_t@01000014", SNAPSHOT)
fn("nvmlSystemGetConfComputeState", "state:nvmlConfComputeSystemState_t*", SNAPSHOT)
fn("nvmlSystemGetCudaDriverVersion", "cudaDriverVersion:int*", SNAPSHOT)
fn("nvmlSystemGetCudaDriverVersion_v2", "cudaDriverVersion:int*", SNAPSHOT)
fn("nvmlSystemGetDriverBranch", "branchInfo:nvmlSystemDriverBranchInfo_t@01000054 length:int")
fn("nvmlSystemGetDriverVersion", "version:text", SNAPSHOT)
fn("nvmlSystemGetHicVersion", "hwbcEntries:nvmlHwbcEntry_t[]", SNAPSHOT)
fn("nvmlSystemGetNVMLVersion", "version:text", SNAPSHOT)
fn("nvmlSystemGetNvlinkBwMode", "nvlinkBwMode:int*")
fn("nvmlSystemGetProcessName", "pid:int name:text", LOCAL)
fn("nvmlSystemGetTopologyGpuSet", "cpuNumber:int deviceArray_count:int* deviceArray:ptr?")
fn("nvmlSystemRegisterEvents", "request:nvmlSystemRegisterEventRequest_t@01000018")
fn("nvmlSystemSetConfComputeGpusReadyState", "isAcceptingWork:int")
fn("nvmlSystemSetConfComputeKeyRotationThresholdInfo", "pKeyRotationThrInfo:ptr")
fn("nvmlSystemSetNvlinkBwMode", "nvlinkBwMode:int")
fn("nvmlUnitGetCount", "unitCount:int*", SNAPSHOT)
fn("nvmlUnitGetDevices", "unit devices_count:int* devices:ptr?")
fn("nvmlUnitGetFanSpeedInfo", "unit fanSpeeds:ptr")
fn("nvmlUnitGetHandleByIndex", "index:int unit:ptr")
fn("nvmlUnitGetLedState", "unit state:ptr")
fn("nvmlUnitGetPsuInfo", "unit psu:ptr")
fn("nvmlUnitGetTemperature", "unit type:int temp:int*")
fn("nvmlUnitGetUnitInfo", "unit info:ptr")
fn("nvmlUnitSetLedState", "unit color:int")
