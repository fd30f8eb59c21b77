"""Why a function of NVML has no answer: it returns NOT_SUPPORTED after its arguments have been checked. Names without
`nvml`.

The generator refuses a function that has neither a source nor a reason.
"""

REASONS: tuple[tuple[str, str], ...] = (
    (
        "vGPUs are NVIDIA's own way to share a card, between virtual machines of its drivers; there are none here.",
        "*Vgpu* *vgpu* DeviceGetGridLicensableFeatures* DeviceGetHostVgpuMode DeviceGetPgpuMetadataString "
        "DeviceSetVirtualizationMode",
    ),
    (
        "It changes the device, or the host, for everybody who uses it; a guest is one of them.",
        "DeviceSet* DeviceReset* DeviceClear* DeviceFreeze* DeviceCreate* *Destroy GpuInstanceCreate* "
        "DeviceModifyDrainState DeviceRemoveGpu* DeviceDiscoverGpus DevicePowerSmoothing* "
        "DeviceWorkloadPowerProfileClear* DeviceWorkloadPowerProfileSet* DeviceReadWritePRM* GpmSetStreaming* "
        "SystemSet* UnitSet* DeviceValidateInforom",
    ),
    (
        "A guest has a device, or a MIG instance, as a whole: it divides nothing and sees no other part.",
        "GpuInstance* ComputeInstance* DeviceGetGpuInstance* DeviceGetMigDeviceHandle* DeviceGetDeviceHandleFromMig* "
        "DeviceGetComputeInstanceId DeviceGetAttributes* GpmMigSampleGet",
    ),
    (
        "It tells of other users' processes. A guest's own are in nvmlDeviceGetComputeRunningProcesses.",
        "DeviceGetAccounting* DeviceGetProcessUtilization DeviceGetProcessesUtilizationInfo "
        "DeviceGetRunningProcessDetailList",
    ),
    (
        "It tells which machine this is, or where the card sits in it; the guest's own processors are others.",
        "DeviceGetSerial DeviceGetMinorNumber DeviceGetModuleId DeviceGetPlatformInfo DeviceGetHostname* DeviceGetPdi "
        "DeviceGetCpuAffinity* DeviceGetMemoryAffinity DeviceGetNumaNodeId DeviceGetTopology* SystemGetTopology* "
        "DeviceOnSameBoard DeviceGetIrqNum GetExcludedDevice* GetBlacklistDevice* DeviceGetInforom* "
        "DeviceGetLastBBXFlushTime DeviceGetBridgeChipInfo SystemGetDriverBranch DeviceQueryDrainState "
        "DeviceGetAPIRestriction",
    ),
    ("S-class units hold cards outside a machine; no supported driver has met one.", "Unit*"),
    (
        "Confidential computing protects a host's memory from others; a remoted guest is outside of it.",
        "*ConfCompute* *DramEncryption*",
    ),
    ("Encoders and frame capture are not remoted.", "DeviceGetEncoder* DeviceGetFBC*"),
    (
        "Counters that all users of a device share, and that asking changes.",
        "Gpm* DeviceReadPRM* DeviceGetNvLinkUtilization* DeviceGetSamples",
    ),
    ("Events of the whole machine.", "SystemEventSet* SystemRegisterEvents"),
    (
        "Not carried yet: tables and settings of clocks, fans and power that programs rarely read.",
        "*Clock* *Clk* *Fan* *Cooler* *Power* *Pstates* *PerformanceModes DeviceGetSupportedPerformanceStates "
        "DeviceGetThermalSettings DeviceGetDriverModel* DeviceGetGpuOperationMode DeviceGetCapabilities",
    ),
    (
        "Not carried yet: histories of errors and repairs.",
        "DeviceGetRetiredPages* DeviceGetRemappedRows_v2 DeviceGetRepairStatus DeviceGetSram* "
        "DeviceGetUnrepairableMemory*",
    ),
    (
        "Not carried yet: what links can be set to.",
        "*NvlinkBwMode* DeviceGetNvlinkSupportedBwModes DeviceGetNvLinkInfo",
    ),
    ("Older than the versioned form, which is answered.", "DeviceGetGpuFabricInfo"),
)
