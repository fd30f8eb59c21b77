"""What -q shows: each section of a device with its keys, in text, in XML, and by the words of -d."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """One value: its key in the text, its element in the XML ("" where that has none), its field of --query-gpu or of
    detail_field.DETAIL. In a nested key or element, a slash follows each heading."""

    key: str
    element: str
    field: str


@dataclass(frozen=True, slots=True)
class Section:
    """Entries under one title; an empty title is the device itself. `display`: the word of -d that chooses it."""

    title: str
    element: str
    display: str
    entries: tuple[Entry, ...]


def _section(title: str, element: str, display: str, *rows: tuple[str, str, str]) -> Section:
    return Section(title, element, display, tuple(Entry(*row) for row in rows))


_PAIR = (("Current", "current"), ("Pending", "pending"))
_GENERATION, _PCIE_GEN = "GPU Link Info/PCIe Generation", "pci_gpu_link_info/pcie_gen"
_WIDTH, _LINK_WIDTHS = "GPU Link Info/Link Width", "pci_gpu_link_info/link_widths"
_REASON, _COUNTER = "clocks_event_reason", "clocks_event_reasons_counters"
_HISTOGRAM = "Bank Remap Availability Histogram"
_SINGLE, _DOUBLE = "multiple_single_bit_retirement", "double_bit_retirement"
_ECC = tuple(
    (f"{word.capitalize()}/{key}", f"{word}/{element}", f"ecc.errors.{field.format(word)}")
    for word in ("volatile", "aggregate")
    for key, element, field in (
        ("SRAM Correctable", "sram_correctable", "corrected.{}.sram"),
        ("SRAM Uncorrectable Parity", "sram_uncorrectable_parity", "uncorrected.{}.sram.parity"),
        ("SRAM Uncorrectable SEC-DED", "sram_uncorrectable_secded", "uncorrected.{}.sram.secded"),
        ("DRAM Correctable", "dram_correctable", "corrected.{}.dram"),
        ("DRAM Uncorrectable", "dram_uncorrectable", "uncorrected.{}.dram"),
    )
)
_ECC_SOURCES = tuple(
    (f"Aggregate Uncorrectable SRAM Sources/SRAM {key}", f"aggregate_uncorrectable_sram_sources/sram_{name}", "none")
    for key, name in (
        ("L2", "l2"),
        ("SM", "sm"),
        ("Microcontroller", "microcontroller"),
        ("PCIE", "pcie"),
        ("Other", "other"),
    )
)
_POWERS = (
    ("Average Power Draw", "average_power_draw"),
    ("Instantaneous Power Draw", "instant_power_draw"),
    ("Current Power Limit", "current_power_limit"),
    ("Requested Power Limit", "requested_power_limit"),
    ("Default Power Limit", "default_power_limit"),
    ("Min Power Limit", "min_power_limit"),
    ("Max Power Limit", "max_power_limit"),
)
_GPU_POWERS = (
    *("power.draw.average", "power.draw.instant", "enforced.power.limit", "power.limit", "power.default_limit"),
    *("power.min_limit", "power.max_limit"),
)
_HEALTH = (
    *("summary", "bandwidth", "route_recovery_in_progress", "route_unhealthy", "access_timeout_recovery"),
    *("incorrect_configuration", "partition_assigned"),
)


def _stats(title: str, element: str, display: str, fields: tuple[str, str, str]) -> Section:
    keys = (
        ("Active Sessions", "session_count"),
        ("Average FPS", "average_fps"),
        ("Average Latency", "average_latency"),
    )
    return _section(title, element, display, *((*key, field) for key, field in zip(keys, fields, strict=True)))


# In the order of `nvidia-smi -q` of release 580 on an H200, whose XML names itself nvsmi_device_v13.
SECTIONS = (
    _section(
        *("", "", ""),
        ("Product Name", "product_name", "name"),
        ("Product Brand", "product_brand", "brand"),
        ("Product Architecture", "product_architecture", "architecture"),
        ("Display Mode", "display_mode", "display_mode"),
        ("Display Attached", "display_attached", "display_attached"),
        ("Display Active", "display_active", "display_active"),
        ("Persistence Mode", "persistence_mode", "persistence_mode"),
        ("Addressing Mode", "addressing_mode", "addressing_mode"),
        ("Compute Capability", "compute_capability", "compute_cap"),  # of vgpu's own
    ),
    _section("MIG Mode", "mig_mode", "", *((k, f"{e}_mig", f"mig.mode.{e}") for k, e in _PAIR)),
    _section("", "", "", ("", "mig_devices", "no_devices")),
    _section(
        *("", "", "ACCOUNTING"),
        ("Accounting Mode", "accounting_mode", "accounting.mode"),
        ("Accounting Mode Buffer Size", "accounting_mode_buffer_size", "accounting.buffer_size"),
    ),
    _section("Driver Model", "driver_model", "", *((k, f"{e}_dm", f"driver_model.{e}") for k, e in _PAIR)),
    _section(
        *("", "", ""),
        ("Serial Number", "serial", "serial"),
        ("GPU UUID", "uuid", "uuid"),
        ("GPU PDI", "pdi", "none"),
        ("Minor Number", "minor_number", "minor_number"),
        ("VBIOS Version", "vbios_version", "vbios_version"),
        ("MultiGPU Board", "multigpu_board", "multigpu_board"),
        ("Board ID", "board_id", "board_id"),
        ("Board Part Number", "board_part_number", "board_part_number"),
        ("GPU Part Number", "gpu_part_number", "none"),
        ("FRU Part Number", "gpu_fru_part_number", "none"),
    ),
    _section(
        *("Platform Info", "platformInfo", ""),
        ("Chassis Serial Number", "chassis_serial_number", "none"),
        ("Slot Number", "slot_number", "none"),
        ("Tray Index", "tray_index", "none"),
        ("Host ID", "host_id", "none"),
        ("Peer Type", "peer_type", "none"),
        ("Module Id", "module_id", "none"),
        ("GPU Fabric GUID", "gpu_fabric_guid", "none"),
    ),
    _section(
        *("Inforom Version", "inforom_version", ""),
        ("Image Version", "img_version", "inforom.img"),
        ("OEM Object", "oem_object", "inforom.oem"),
        ("ECC Object", "ecc_object", "inforom.ecc"),
        ("Power Management Object", "pwr_object", "inforom.pwr"),
    ),
    _section(
        *("Inforom BBX Object Flush", "inforom_bbx_flush", ""),
        ("Latest Timestamp", "latest_timestamp", "none"),
        ("Latest Duration", "latest_duration", "none"),
    ),
    _section("GPU Operation Mode", "gpu_operation_mode", "", *((k, f"{e}_gom", f"gom.{e}") for k, e in _PAIR)),
    _section("", "", "", ("GPU C2C Mode", "c2c_mode", "c2c.mode")),
    _section(
        *("GPU Virtualization Mode", "gpu_virtualization_mode", ""),
        ("Virtualization Mode", "virtualization_mode", "virtualization"),
        ("Host VGPU Mode", "host_vgpu_mode", "none"),
        ("vGPU Heterogeneous Mode", "vgpu_heterogeneous_mode", "none"),
    ),
    _section("", "", "RESET_STATUS", ("GPU Recovery Action", "gpu_recovery_action", "gpu_recovery_action")),
    _section("", "", "GSP_FIRMWARE_VERSION", ("GSP Firmware Version", "gsp_firmware_version", "gsp_version")),
    _section("IBMNPU", "ibmnpu", "", ("Relaxed Ordering Mode", "relaxed_ordering_mode", "none")),
    _section(
        *("PCI", "pci", ""),
        ("Bus", "pci_bus", "pci.bus"),
        ("Device", "pci_device", "pci.device"),
        ("Domain", "pci_domain", "pci.domain"),
        ("Base Classcode", "pci_base_class", "pci.baseClass"),
        ("Sub Classcode", "pci_sub_class", "pci.subClass"),
        ("Device Id", "pci_device_id", "pci.device_id"),
        ("Bus Id", "pci_bus_id", "pci.bus_id"),
        ("Sub System Id", "pci_sub_system_id", "pci.sub_device_id"),
        (f"{_GENERATION}/Max", f"{_PCIE_GEN}/max_link_gen", "pcie.link.gen.max"),
        (f"{_GENERATION}/Current", f"{_PCIE_GEN}/current_link_gen", "pcie.link.gen.current"),
        (f"{_GENERATION}/Device Current", f"{_PCIE_GEN}/device_current_link_gen", "pcie.link.gen.gpucurrent"),
        (f"{_GENERATION}/Device Max", f"{_PCIE_GEN}/max_device_link_gen", "pcie.link.gen.gpumax"),
        (f"{_GENERATION}/Host Max", f"{_PCIE_GEN}/max_host_link_gen", "pcie.link.gen.hostmax"),
        (f"{_WIDTH}/Max", f"{_LINK_WIDTHS}/max_link_width", "pcie.link.width.max"),
        (f"{_WIDTH}/Current", f"{_LINK_WIDTHS}/current_link_width", "pcie.link.width.current"),
        ("Bridge Chip/Type", "pci_bridge_chip/bridge_chip_type", "none"),
        ("Bridge Chip/Firmware", "pci_bridge_chip/bridge_chip_fw", "none"),
        ("Replays Since Reset", "replay_counter", "replays"),
        ("Replay Number Rollovers", "replay_rollover_counter", "none"),
        ("Tx Throughput", "tx_util", "tx"),
        ("Rx Throughput", "rx_util", "rx"),
        ("Atomic Caps Outbound", "atomic_caps_outbound", "none"),
        ("Atomic Caps Inbound", "atomic_caps_inbound", "none"),
    ),
    _section("", "", "", ("Fan Speed", "fan_speed", "fan.speed")),
    _section("", "", "PERFORMANCE", ("Performance State", "performance_state", "pstate")),
    _section(
        *("Clocks Event Reasons", "clocks_event_reasons", "PERFORMANCE"),
        ("Idle", f"{_REASON}_gpu_idle", "clocks_event_reasons.gpu_idle"),
        *(
            (key, f"{_REASON}_{name}", f"clocks_event_reasons.{name}")
            for key, name in (
                ("Applications Clocks Setting", "applications_clocks_setting"),
                ("SW Power Cap", "sw_power_cap"),
                ("HW Slowdown", "hw_slowdown"),
                ("HW Slowdown/HW Thermal Slowdown", "hw_thermal_slowdown"),
                ("HW Slowdown/HW Power Brake Slowdown", "hw_power_brake_slowdown"),
                ("Sync Boost", "sync_boost"),
                ("SW Thermal Slowdown", "sw_thermal_slowdown"),
            )
        ),
        ("Display Clock Setting", f"{_REASON}_display_clocks_setting", "display_clocks"),
    ),
    _section(
        *("Clocks Event Reasons Counters", _COUNTER, "PERFORMANCE"),
        ("SW Power Capping", f"{_COUNTER}_sw_power_cap", f"{_COUNTER}.sw_power_cap"),
        ("Sync Boost", f"{_COUNTER}_sync_boost", f"{_COUNTER}.sync_boost"),
        ("SW Thermal Slowdown", f"{_COUNTER}_sw_therm_slowdown", f"{_COUNTER}.sw_thermal_slowdown"),
        ("HW Thermal Slowdown", f"{_COUNTER}_hw_therm_slowdown", f"{_COUNTER}.hw_thermal_slowdown"),
        ("HW Power Braking", f"{_COUNTER}_hw_power_brake", f"{_COUNTER}.hw_power_brake_slowdown"),
    ),
    _section("", "", "PERFORMANCE", ("Sparse Operation Mode", "sparse_operation_mode", "none")),
    _section(
        *("FB Memory Usage", "fb_memory_usage", "MEMORY"),
        *((word, word.lower(), f"memory.{word.lower()}") for word in ("Total", "Reserved", "Used", "Free")),
    ),
    _section(
        *("BAR1 Memory Usage", "bar1_memory_usage", "MEMORY"),
        *((word, word.lower(), f"bar1.{word.lower()}") for word in ("Total", "Used", "Free")),
    ),
    _section(
        *("Conf Compute Protected Memory Usage", "cc_protected_memory_usage", "MEMORY"),
        *((word, word.lower(), f"protected_memory.{word.lower()}") for word in ("Total", "Used", "Free")),
    ),
    _section("", "", "COMPUTE", ("Compute Mode", "compute_mode", "compute_mode")),
    _section(
        *("Utilization", "utilization", "UTILIZATION"),
        ("GPU", "gpu_util", "utilization.gpu"),
        ("Memory", "memory_util", "utilization.memory"),
        ("Encoder", "encoder_util", "utilization.encoder"),
        ("Decoder", "decoder_util", "utilization.decoder"),
        ("JPEG", "jpeg_util", "utilization.jpeg"),
        ("OFA", "ofa_util", "utilization.ofa"),
    ),
    _stats(
        *("Encoder Stats", "encoder_stats", "ENCODER_STATS"),
        ("encoder.stats.sessionCount", "encoder.stats.averageFps", "encoder.stats.averageLatency"),
    ),
    _stats("FBC Stats", "fbc_stats", "FBC_STATS", ("none", "none", "none")),
    _section(
        *("DRAM Encryption Mode", "dram_encryption_mode", "ECC"),
        *((k, f"{e}_dram_encryption", f"dramEncryption.mode.{e}") for k, e in _PAIR),
    ),
    _section("ECC Mode", "ecc_mode", "ECC", *((k, f"{e}_ecc", f"ecc.mode.{e}") for k, e in _PAIR)),
    _section(
        *("ECC Errors", "ecc_errors", "ECC"),
        *_ECC,
        ("Aggregate/SRAM Threshold Exceeded", "aggregate/sram_threshold_exceeded", "none"),
        *_ECC_SOURCES,
        ("Channel Repair Pending", "channel_repair_pending", "none"),
        ("TPC Repair Pending", "tpc_repair_pending", "none"),
        ("Unrepairable Memory", "unrepairable_memory", "none"),
    ),
    _section(
        *("Retired Pages", "retired_pages", "PAGE_RETIREMENT"),
        ("Single Bit ECC", f"{_SINGLE}/retired_count", "retired_pages.single_bit_ecc.count"),
        ("", f"{_SINGLE}/retired_pagelist", "none"),
        ("Double Bit ECC", f"{_DOUBLE}/retired_count", "retired_pages.double_bit.count"),
        ("", f"{_DOUBLE}/retired_pagelist", "none"),
        ("Pending Page Blacklist", "pending_blacklist", "retired_pages.pending"),
        ("", "pending_retirement", "none"),
    ),
    _section(
        *("Remapped Rows", "remapped_rows", "ROW_REMAPPER"),
        ("Correctable Error", "remapped_row_corr", "remapped_rows.correctable"),
        ("Inactive Correctable Error", "remapped_row_corr_inactive", "none"),
        ("Uncorrectable Error", "remapped_row_unc", "remapped_rows.uncorrectable"),
        ("Inactive Uncorrectable Error", "remapped_row_unc_inactive", "none"),
        ("Pending", "remapped_row_pending", "remapped_rows.pending"),
        ("Remapping Failure Occurred", "remapped_row_failure", "remapped_rows.failure"),
        *(
            (
                f"{_HISTOGRAM}/{word}",
                f"row_remapper_histogram/row_remapper_histogram_{word.lower()}",
                f"banks.{word.lower()}",
            )
            for word in ("Max", "High", "Partial", "Low", "None")
        ),
    ),
    _section(
        *("Temperature", "temperature", "TEMPERATURE"),
        ("GPU Current Temp", "gpu_temp", "gpu_temp"),
        ("GPU T.Limit Temp", "gpu_temp_tlimit", "gpu_temp_tlimit"),
        ("GPU Shutdown T.Limit Temp", "gpu_temp_max_tlimit_threshold", "none"),
        ("GPU Slowdown T.Limit Temp", "gpu_temp_slow_tlimit_threshold", "none"),
        ("GPU Max Operating T.Limit Temp", "gpu_temp_max_gpu_tlimit_threshold", "none"),
        ("GPU Target Temperature", "gpu_target_temperature", "none"),
        ("Memory Current Temp", "memory_temp", "temperature.memory"),
        ("Memory Max Operating T.Limit Temp", "gpu_temp_max_mem_tlimit_threshold", "none"),
    ),
    _section(
        *("", "supported_gpu_target_temp", "TEMPERATURE"),
        ("", "gpu_target_temp_min", "none"),
        ("", "gpu_target_temp_max", "none"),
    ),
    _section(
        *("GPU Power Readings", "gpu_power_readings", "POWER"),
        ("", "power_state", "pstate"),
        *((*power, field) for power, field in zip(_POWERS, _GPU_POWERS, strict=True)),
    ),
    _section(
        *("GPU Memory Power Readings", "gpu_memory_power_readings", "POWER"),
        *((*power, "none") for power in _POWERS[:2]),
    ),
    _section(
        *("Module Power Readings", "module_power_readings", "POWER"),
        ("", "power_state", "pstate"),
        *((*power, "none") for power in _POWERS),
    ),
    _section("", "", "POWER_SMOOTHING", ("Power Smoothing", "power_smoothing", "none")),
    _section(
        *("Workload Power Profiles", "power_profiles", "POWER_PROFILES"),
        ("Requested Profiles", "power_profile_requested_profiles", "none"),
        ("Enforced Profiles", "power_profile_enforced_profiles", "none"),
    ),
    _section(
        *("Clocks", "clocks", "CLOCK"),
        ("Graphics", "graphics_clock", "clocks.current.graphics"),
        ("SM", "sm_clock", "clocks.current.sm"),
        ("Memory", "mem_clock", "clocks.current.memory"),
        ("Video", "video_clock", "clocks.current.video"),
    ),
    *(
        _section(
            *(title, title.lower().replace(" ", "_"), "CLOCK"),
            ("Graphics", "graphics_clock", f"clocks.{word}.graphics"),
            ("Memory", "mem_clock", f"clocks.{word}.memory"),
        )
        for title, word in (
            ("Applications Clocks", "applications"),
            ("Default Applications Clocks", "default_applications"),
        )
    ),
    _section("Deferred Clocks", "deferred_clocks", "CLOCK", ("Memory", "mem_clock", "none")),
    _section(
        *("Max Clocks", "max_clocks", "CLOCK"),
        ("Graphics", "graphics_clock", "clocks.max.graphics"),
        ("SM", "sm_clock", "clocks.max.sm"),
        ("Memory", "mem_clock", "clocks.max.memory"),
        ("Video", "video_clock", "clocks.max.video"),
    ),
    _section(
        "Max Customer Boost Clocks", "max_customer_boost_clocks", "CLOCK", ("Graphics", "graphics_clock", "boost_clock")
    ),
    _section(
        *("Clock Policy", "clock_policy", "CLOCK"),
        ("Auto Boost", "auto_boost", "none"),
        ("Auto Boost Default", "auto_boost_default", "none"),
    ),
    _section(
        *("Fabric", "fabric", ""),
        ("State", "state", "none"),
        ("Status", "status", "none"),
        ("CliqueId", "cliqueId", "none"),
        ("ClusterUUID", "clusterUuid", "none"),
        *(
            (f"Health/{name.replace('_', ' ').title().replace('In Progress', 'in progress')}", f"health/{name}", "none")
            for name in _HEALTH
        ),
    ),
    _section("", "", "SUPPORTED_CLOCKS", ("", "supported_clocks", "none")),
)
PROCESSES = "PIDS"  # the word of -d for the processes, shown between SECTIONS and LAST_SECTIONS
LAST_SECTIONS = (_section("Capabilities", "capabilities", "", ("EGM", "egm", "none")),)
DISPLAYS = tuple(sorted({section.display for section in SECTIONS if section.display} | {PROCESSES}))
