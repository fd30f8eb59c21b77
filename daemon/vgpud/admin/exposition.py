"""The metrics in Prometheus' text format, by prometheus_client; devices are named as DCGM's exporter names them."""

from __future__ import annotations

import itertools
import socket
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, UnknownMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from vgpud.tenancy.meter import BOUNDS_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client.metrics_core import Metric

    from vgpud.tenancy.meter import Function

_MIB = 1 << 20
_GAUGES = {
    "connections_pending": "connections that have not been welcomed yet",
    "sessions_open": "open sessions",
    "images_held": "program images kept for the next start",
    "image_nbytes_held": "bytes of the images that are kept",
    "image_tenants": "tenants that have images kept",
    "ipc_objects": "allocations and events that clients share",
}
_COUNTERS = {
    "connections_accepted": "connections accepted",
    "connections_dropped": "connections closed without an answer",
    "sessions_opened": "sessions opened",
    "sessions_attached": "sessions that were given a worker",
    "nbytes_before_admission": "bytes read before admission",
    "pings": "pings answered",
    "nvml_questions": "NVML questions answered",
    "workers_started": "worker processes started",
    "workers_ended": "worker processes ended",
    "workers_failed": "worker processes ended by a signal or a nonzero code",
    "workers_killed": "worker processes killed by vgpud",
    "warm_workers_taken": "clients that found a context made",
    "image_hits": "images that a client did not need to send",
    "image_misses": "images that a client had to send",
    "image_nbytes_spared": "bytes of images that were not sent",
    "image_nbytes_uploaded": "bytes of images that were sent and verified",
    "images_refused": "images refused",
}
_OF_TENANT = {
    "calls": "calls of its programs",
    "bytes": "bytes of calls and replies; memory that client and worker share is not counted",
    "faults": "kernels that ended their program's context",
    "cpu_seconds": "processor time of its workers",
    "held_seconds": "for which its calls were held back, as its share bounds how many it may make in a second",
}
# Readings of a device; those of a real device are the host NVML's. Names and meanings are those of DCGM's exporter.
DCGM_GAUGES = {
    "DCGM_FI_DEV_FB_USED": "Framebuffer memory used (in MiB).",
    "DCGM_FI_DEV_FB_FREE": "Framebuffer memory free (in MiB).",
    "DCGM_FI_DEV_SM_CLOCK": "SM clock frequency (in MHz).",
    "DCGM_FI_DEV_MEM_CLOCK": "Memory clock frequency (in MHz).",
    "DCGM_FI_DEV_MEMORY_TEMP": "Memory temperature (in C).",
    "DCGM_FI_DEV_GPU_TEMP": "GPU temperature (in C).",
    "DCGM_FI_DEV_POWER_USAGE": "Power draw (in W).",
    "DCGM_FI_DEV_GPU_UTIL": "GPU utilization (in %).",
    "DCGM_FI_DEV_MEM_COPY_UTIL": "Memory utilization (in %).",
    "DCGM_FI_DEV_ENC_UTIL": "Encoder utilization (in %).",
    "DCGM_FI_DEV_DEC_UTIL": "Decoder utilization (in %).",
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": "Whether remapping of rows has failed",
    "DCGM_FI_DEV_XID_ERRORS": "Value of the last XID error encountered.",
}
# Counters of DCGM's exporter, given without a type: prometheus_client would add _total to a counter's name.
DCGM_COUNTERS = {
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": "Total energy consumption since boot (in mJ).",
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": "Total number of PCIe retries.",
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": "Total number of NVLink bandwidth counters for all lanes",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": "Number of remapped rows for uncorrectable errors",
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": "Number of remapped rows for correctable errors",
}
_OF_SESSION = ("session", "tenant", "share")  # labels; clients cannot choose their values


@dataclass(frozen=True, slots=True, eq=False)
class Page:
    """The data behind the page of `GET /metrics`.

    `snapshot`: of vgpud.metrics. `devices`: for each {uuid, name, memory_nbytes, used_nbytes (simulated only),
    in_service, gauges (of DCGM_GAUGES and DCGM_COUNTERS)}. `sessions`: what `GET /v1/sessions` lists. `functions`: by
    name. `tenants`: by tenant, the values of _OF_TENANT. `refused`: by tenant, the calls refused under each quota;
    `denied`: those of each group of functions that its share denies.
    `turns`: by tenant and device, for how many seconds its sessions had the turn.
    """

    snapshot: dict[str, Any]
    devices: list[dict[str, Any]]
    sessions: list[dict[str, Any]]
    functions: dict[str, Function]
    tenants: dict[str, dict[str, float]]
    refused: dict[str, dict[str, int]] = field(default_factory=dict)
    turns: dict[tuple[str, int], float] = field(default_factory=dict)
    denied: dict[str, dict[str, int]] = field(default_factory=dict)

    def text(self) -> bytes:
        """In Prometheus' format."""
        registry = CollectorRegistry()
        registry.register(self)
        return generate_latest(registry)

    def collect(self) -> Iterator[Metric]:
        """Every metric, with its samples."""
        yield GaugeMetricFamily("vgpu_uptime_seconds", "since vgpud started", value=self.snapshot["uptime_s"])
        for name, text in _GAUGES.items():
            yield GaugeMetricFamily(_named(name), text, value=self.snapshot[name])
        for name, text in _COUNTERS.items():
            yield CounterMetricFamily(_named(name), text, value=self.snapshot[name])
        refused = CounterMetricFamily("vgpu_refusals", "clients turned down, by CUresult", labels=["code"])
        for code, count in self.snapshot["refusals"].items():
            refused.add_metric([code], count)
        yield refused
        yield from self._of_devices()
        yield from self._of_sessions()
        yield from self._of_functions()
        yield from self._of_tenants()

    def _of_devices(self) -> Iterable[Metric]:
        labels = ["gpu", "UUID", "modelName", "Hostname"]
        service = GaugeMetricFamily("vgpu_device_in_service", "whether clients may use a device", labels=["gpu"])
        for index, device in enumerate(self.devices):
            service.add_metric([str(index)], device["in_service"])
        read: dict[str, GaugeMetricFamily | UnknownMetricFamily] = {
            name: GaugeMetricFamily(name, text, labels=labels) for name, text in DCGM_GAUGES.items()
        }
        read |= {name: UnknownMetricFamily(name, text, labels=labels) for name, text in DCGM_COUNTERS.items()}
        for index, device in enumerate(self.devices):
            values = [str(index), f"GPU-{device['uuid']}", device["name"], socket.gethostname()]
            gauges = dict(device["gauges"])
            if device["used_nbytes"] is not None:
                gauges["DCGM_FI_DEV_FB_USED"] = device["used_nbytes"] // _MIB
                gauges["DCGM_FI_DEV_FB_FREE"] = max(0, device["memory_nbytes"] - device["used_nbytes"]) // _MIB
            for name, value in gauges.items():
                read[name].add_metric(values, value)
        return [service, *(family for family in read.values() if family.samples)]

    def _of_sessions(self) -> Iterable[Metric]:
        memory = GaugeMetricFamily(
            "vgpu_session_memory_bytes", "device memory of a session", labels=[*_OF_SESSION, "gpu"]
        )
        time = CounterMetricFamily(
            "vgpu_session_worker_cpu_seconds", "processor time of a session's worker", labels=_OF_SESSION
        )
        for session in self.sessions:
            values = [str(session[label] or "") for label in _OF_SESSION]
            for index, nbytes in enumerate(session["memory_nbytes"] or []):
                memory.add_metric([*values, str(index)], nbytes)
            if session["worker_cpu_s"] is not None:
                time.add_metric(values, session["worker_cpu_s"])
        return [memory, time]

    def _of_functions(self) -> Iterable[Metric]:
        calls = CounterMetricFamily("vgpu_calls", "calls of a function", labels=["function"])
        text = "time of a call in its worker; of queued calls one in sixteen is timed"
        times = HistogramMetricFamily("vgpu_call_seconds", text, labels=["function"])
        for name, function in sorted(self.functions.items()):
            calls.add_metric([name], function.calls)
            counts = list(itertools.accumulate(function.buckets))
            buckets = [(repr(bound), count) for bound, count in zip(BOUNDS_S, counts, strict=False)]
            times.add_metric([name], [*buckets, ("+Inf", counts[-1])], function.timed_ns / 1e9)
        return [calls, times]

    def _of_tenants(self) -> Iterable[Metric]:
        families = {
            key: CounterMetricFamily(f"vgpu_tenant_{key}", text, labels=["tenant"]) for key, text in _OF_TENANT.items()
        }
        for tenant, usage in sorted(self.tenants.items()):
            for key, family in families.items():
                family.add_metric([tenant], usage[key])
        memory = GaugeMetricFamily("vgpu_tenant_memory_bytes", "device memory of a tenant", labels=["tenant", "gpu"])
        held: Counter[tuple[str, str]] = Counter()
        for session in self.sessions:
            for index, nbytes in enumerate(session["memory_nbytes"] or []):
                held[session["tenant"], str(index)] += nbytes
        for labels, nbytes in held.items():
            memory.add_metric(labels, nbytes)
        text = "for which it had the turn on a card that others used, too, since its oldest session began"
        turns = CounterMetricFamily("vgpu_tenant_turn_seconds", text, labels=["tenant", "gpu"])
        for (tenant, device), seconds in sorted(self.turns.items()):
            turns.add_metric([tenant, str(device)], seconds)
        denied = CounterMetricFamily("vgpu_tenant_denied_calls", "calls its share denies", labels=["tenant", "group"])
        for tenant, counts in sorted(self.denied.items()):
            for group, count in counts.items():
                denied.add_metric([tenant, group], count)
        return [*families.values(), memory, turns, denied, *self._of_quotas()]

    def _of_quotas(self) -> Iterable[Metric]:
        labels = ["tenant", "quota"]
        used = GaugeMetricFamily("vgpu_tenant_quota_used", "what a tenant's sessions have of a quota", labels=labels)
        limits = GaugeMetricFamily("vgpu_tenant_quota_limit", "what they may have", labels=labels)
        sums: Counter[tuple[str, str]] = Counter()
        bounds: dict[tuple[str, str], int] = {}
        for session in self.sessions:
            for quota, each in (session["quotas"] or {}).items():
                sums[session["tenant"], quota] += each["used"]
                if each["limit"] is not None:
                    bounds[session["tenant"], quota] = each["limit"]
        for family, values in ((used, sums), (limits, bounds)):
            for key, value in values.items():
                family.add_metric(key, value)
        refused = CounterMetricFamily("vgpu_tenant_quota_refusals", "calls refused as over a quota", labels=labels)
        for tenant, counts in sorted(self.refused.items()):
            for quota, count in counts.items():
                refused.add_metric([tenant, quota], count)
        return [used, limits, refused]


def _named(counter: str) -> str:
    """As Prometheus names units: `image_nbytes_held` is vgpu_image_held_bytes."""
    words = counter.split("_")
    return "_".join(["vgpu", *(word for word in words if word != "nbytes"), *(["bytes"] if "nbytes" in words else [])])


__all__ = ["CONTENT_TYPE_LATEST", "Page"]
