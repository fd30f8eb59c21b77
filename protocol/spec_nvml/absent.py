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
        "It is about a MIG instance, and a guest's device is a whole one: NVIDIA's library refuses it there, too. "
        "Profiles and the remaining capacity are answered.",
        "GpuInstance* ComputeInstance* DeviceGetGpuInstanceById DeviceGetGpuInstanceId DeviceGetGpuInstances "
        "DeviceGetMigDeviceHandle* DeviceGetDeviceHandleFromMig* DeviceGetComputeInstanceId DeviceGetAttributes* "
        "GpmMigSampleGet",
    ),
    (
        "Where an instance of MIG could lie is of use only to who may create one.",
        "DeviceGetGpuInstancePossiblePlacements*",
    ),
    (
        "The guest's own processes are in nvmlDeviceGetComputeRunningProcesses and nvmlDeviceGetProcessUtilization; "
        "this form has a pointer inside its struct.",
        "DeviceGetProcessesUtilizationInfo DeviceGetRunningProcessDetailList",
    ),
    (
        "It identifies the machine or the card beyond its UUID.",
        "DeviceGetSerial DeviceGetPlatformInfo DeviceGetHostname* DeviceGetPdi SystemGetDriverBranch",
    ),
    (
        "It says where the card sits in the host, whose processors, device files and drain state are not the guest's.",
        "DeviceGetMinorNumber DeviceGetModuleId DeviceGetCpuAffinity* DeviceGetMemoryAffinity DeviceGetNumaNodeId "
        "DeviceGetTopologyNearestGpus SystemGetTopology* DeviceGetIrqNum DeviceGetBridgeChipInfo "
        "DeviceQueryDrainState",
    ),
    (
        "It says what others than root may change; a guest may change nothing.",
        "DeviceGetAPIRestriction",
    ),
    (
        "Devices that the operator excluded are not shown: their number, which is answered, is 0.",
        "GetExcludedDevice* GetBlacklistDevice*",
    ),
    ("S-class units hold cards outside a machine; no supported driver has met one.", "Unit*"),
    (
        "Confidential computing protects a host's memory from others; a remoted guest is outside of it.",
        "*ConfCompute*",
    ),
    (
        "Its samples show in detail what all tenants of the device compute; utilization, clocks, links and power are "
        "answered by other functions.",
        "Gpm* DeviceReadPRM*",
    ),
    ("Events of the whole machine.", "SystemEventSet* SystemRegisterEvents"),
    (
        "It is a control of NvLinks before Volta, or of the whole host.",
        "DeviceGetNvLinkUtilizationControl SystemGetNvlinkBwMode",
    ),
    (
        "It is about the driver for Windows, operation modes of Kepler, or the power preference of a desktop: no card "
        "for computing under Linux has them.",
        "DeviceGetDriverModel* DeviceGetGpuOperationMode DeviceGetPowerMizerMode*",
    ),
    (
        "It is a second form of an answer that is given: nvmlDeviceGetRetiredPages, nvmlDeviceGetSramEccErrorStatus.",
        "DeviceGetRetiredPages_v2 DeviceGetSramUnique*",
    ),
)
