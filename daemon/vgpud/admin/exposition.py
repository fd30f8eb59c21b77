"""The metrics in Prometheus' text format, by prometheus_client; devices are named as DCGM's exporter names them."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client.metrics_core import Metric

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
_OF_SESSION = ("session", "tenant", "share")  # nothing that a client chooses


def exposition(snapshot: dict[str, Any], devices: list[dict[str, Any]], sessions: list[dict[str, Any]]) -> bytes:
    """The page of `GET /metrics`.

    Args:
        snapshot: of vgpud.metrics.
        devices: {uuid, name, memory_nbytes, used_nbytes (None: not known)} of each device.
        sessions: what `GET /v1/sessions` lists.
    """
    registry = CollectorRegistry()
    registry.register(_Page(snapshot, devices, sessions))
    return generate_latest(registry)


class _Page:
    def __init__(self, snapshot: dict[str, Any], devices: list[dict[str, Any]], sessions: list[dict[str, Any]]) -> None:
        self._snapshot, self._devices, self._sessions = snapshot, devices, sessions

    def collect(self) -> Iterator[Metric]:
        """Every metric, with its samples."""
        yield GaugeMetricFamily("vgpu_uptime_seconds", "since vgpud started", value=self._snapshot["uptime_s"])
        for name, text in _GAUGES.items():
            yield GaugeMetricFamily(_named(name), text, value=self._snapshot[name])
        for name, text in _COUNTERS.items():
            yield CounterMetricFamily(_named(name), text, value=self._snapshot[name])
        refused = CounterMetricFamily("vgpu_refusals", "clients turned down, by CUresult", labels=["code"])
        for code, count in self._snapshot["refusals"].items():
            refused.add_metric([code], count)
        yield refused
        yield from self._of_devices()
        yield from self._of_sessions()

    def _of_devices(self) -> Iterable[Metric]:
        labels = ["gpu", "UUID", "modelName", "Hostname"]
        used = GaugeMetricFamily("DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB).", labels=labels)
        free = GaugeMetricFamily("DCGM_FI_DEV_FB_FREE", "Framebuffer memory free (in MiB).", labels=labels)
        for index, device in enumerate(self._devices):
            if device["used_nbytes"] is None:
                continue
            values = [str(index), f"GPU-{device['uuid']}", device["name"], socket.gethostname()]
            used.add_metric(values, device["used_nbytes"] // _MIB)
            free.add_metric(values, max(0, device["memory_nbytes"] - device["used_nbytes"]) // _MIB)
        return [used, free]

    def _of_sessions(self) -> Iterable[Metric]:
        memory = GaugeMetricFamily(
            "vgpu_session_memory_bytes", "device memory of a session", labels=[*_OF_SESSION, "gpu"]
        )
        time = CounterMetricFamily(
            "vgpu_session_worker_cpu_seconds", "processor time of a session's worker", labels=_OF_SESSION
        )
        for session in self._sessions:
            values = [str(session[label] or "") for label in _OF_SESSION]
            for index, nbytes in enumerate(session["memory_nbytes"] or []):
                memory.add_metric([*values, str(index)], nbytes)
            if session["worker_cpu_s"] is not None:
                time.add_metric(values, session["worker_cpu_s"])
        return [memory, time]


def _named(counter: str) -> str:
    """As Prometheus names units: `image_nbytes_held` is vgpu_image_held_bytes."""
    words = counter.split("_")
    return "_".join(["vgpu", *(word for word in words if word != "nbytes"), *(["bytes"] if "nbytes" in words else [])])


__all__ = ["CONTENT_TYPE_LATEST", "exposition"]
