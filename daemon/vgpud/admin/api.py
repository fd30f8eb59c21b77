"""The administrator's interface, version 1: its requests, which docs/operations.md lists.

It is what `vgpu status`, `ps`, `top`, `session` and `token` use, and the only way into a running vgpud.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol

from vgpud.devices.selection import by_host
from vgpud.log import get_logger
from vgpud.tenancy.token import TokenError, TokenStore

from .exposition import CONTENT_TYPE_LATEST, Page
from .http import HttpError, Request, Response

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from vgpud.audit import Audit
    from vgpud.config import Config
    from vgpud.devices.inventory import Inventory
    from vgpud.metrics import Metrics
    from vgpud.serving.server import Server
    from vgpud.tenancy.meter import Usage
    from vgpud.tenancy.session import Session

VERSION = "v1"
_ALIVE_S = 30.0  # longest time without a line in a stream of events
_EVENTS_HELD = 1024  # events queued for a watcher that reads slowly
_LIFETIMES_S = (1.0, 10 * 365 * 86400.0)
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


class Daemon(Protocol):
    """What the interface needs of the running vgpud."""

    audit: Audit
    config: Config
    server: Server
    metrics: Metrics

    def status(self) -> dict[str, Any]:
        """The document of `GET /v1/status`."""

    async def check_restart(self) -> str | None:
        """The reason why the installed program cannot take over; None: it can."""

    def request_restart(self) -> None:
        """Replace this vgpud by the installed program, after this call returns."""

    def save(self) -> None:
        """Keep tokens and quarantine over a restart. Raises OSError."""


class AdminApi:
    """Answers requests. Every administrative action is in the audit log, with the user (`by`) who ordered it."""

    def __init__(self, daemon: Daemon, inventory: Inventory) -> None:
        self._daemon = daemon
        self._inventory = inventory
        self._audit = daemon.audit
        self._log = get_logger()

    async def answer(self, request: Request) -> Response:
        """One request's answer. Raises HttpError."""
        if request.path == ("metrics",):
            routes: dict[str, Callable[[], Awaitable[Response]]] = {"GET": self._metrics}
        elif not request.path or request.path[0] != VERSION:
            raise HttpError(404, f"the paths are /metrics and those below /{VERSION}")
        else:
            routes = self._routes(request, request.path[1:])
        handler = routes.get("GET" if request.method == "HEAD" else request.method)
        if handler is None:
            allowed = ", ".join(routes)
            raise HttpError(405 if routes else 404, f"allowed here: {allowed}" if routes else "there is no such path")
        return await handler()

    def _routes(self, request: Request, path: tuple[str, ...]) -> dict[str, Callable[[], Awaitable[Response]]]:
        by = request.by
        match path:
            case ("status",):
                return {"GET": self._status}
            case ("sessions",):
                return {"GET": self._sessions}
            case ("sessions", number):
                return {"GET": lambda: self._show(number), "DELETE": lambda: self._kill(number, by)}
            case ("tokens",):
                return {"GET": self._tokens_listed, "POST": lambda: self._issue(request.document(), by)}
            case ("tokens", name):
                return {"DELETE": lambda: self._revoke(name, by)}
            case ("shares",):
                return {"GET": self._shares}
            case ("quarantine",):
                return {"GET": self._quarantined}
            case ("quarantine", tenant):
                return {"PUT": lambda: self._quarantine(tenant, by), "DELETE": lambda: self._release(tenant, by)}
            case ("devices",):
                return {"GET": self._devices}
            case ("devices", number, "service"):
                return {"PUT": lambda: self._restore(number, by), "DELETE": lambda: self._withdraw(number, request)}
            case ("restart",):
                return {"POST": lambda: self._restart(by)}
            case ("watch",):
                return {"GET": self._watch}
        return {}

    @property
    def _tokens(self) -> TokenStore:
        return self._daemon.server.tokens

    # Queries

    async def _status(self) -> Response:
        return Response(document=self._daemon.status())

    async def _sessions(self) -> Response:
        return Response(document={"sessions": await self._described(list(self._daemon.server.sessions))})

    async def _show(self, number: str) -> Response:
        return Response(document=(await self._described([self._session(number)]))[0])

    async def _shares(self) -> Response:
        return Response(document={"shares": [share.model_dump() for share in self._daemon.config.shares]})

    async def _metrics(self) -> Response:
        sessions = await self._described(list(self._daemon.server.sessions))
        devices = []
        for index, device in enumerate(self._inventory.fields["devices"]):
            told = [session["memory_nbytes"] for session in sessions if session["worker_pid"] is not None]
            used = None  # for a real card: NVML reports its memory, including that of other processes
            if self._daemon.config.backend == "simulator" and all(each and index < len(each) for each in told):
                used = sum(each[index] for each in told)
            row = {"uuid": _uuid(device["uuid"]), "name": device["name"], "memory_nbytes": device["memory_nbytes"]}
            gauges = await self._daemon.server.nvml.gauges(index)
            if (xid := self._daemon.metrics.xids.get(index)) is not None:
                gauges["DCGM_FI_DEV_XID_ERRORS"] = xid
            in_service = not self._daemon.server.presence.why(index)
            devices.append(row | {"used_nbytes": used, "gauges": gauges, "in_service": in_service})
        meters = self._daemon.server.meters
        usages = meters.tenants()
        tenants = _tenants(usages, sessions)
        refused = {tenant: usage.refused for tenant, usage in usages.items()}
        turns = {key: ns / 1e9 for key, ns in self._daemon.server.turns.used_ns().items()}
        denied = {tenant: usage.denied for tenant, usage in usages.items()}
        metrics = self._daemon.status()["metrics"]
        page = Page(metrics, devices, sessions, meters.functions(), tenants, refused, turns, denied)
        return Response(text=page.text(), content_type=CONTENT_TYPE_LATEST)

    async def _watch(self) -> Response:
        return Response(stream=self._events())

    async def _events(self) -> AsyncIterator[object]:
        """Every session's opening, attaching and end from now on. A watcher that is too slow gets a last
        line that says so, and is closed."""
        queue: asyncio.Queue[object] = asyncio.Queue(_EVENTS_HELD)
        table = self._daemon.server.sessions
        table.watchers.add(queue)
        try:
            yield {"event": "watching", "sessions": [session.summary() for session in table]}
            while queue in table.watchers:
                try:
                    async with asyncio.timeout(_ALIVE_S):
                        event = await queue.get()
                except TimeoutError:
                    event = {"event": "alive"}  # writing it fails if the watcher has disconnected
                yield event
            while not queue.empty():
                yield queue.get_nowait()
            yield {"event": "lost", "why": f"over {_EVENTS_HELD} events were not read"}
        finally:
            table.watchers.discard(queue)

    async def _described(self, sessions: list[Session]) -> list[dict[str, Any]]:
        """The sessions, with the memory that their workers use; all workers are asked concurrently."""
        told = await asyncio.gather(*(_memory(session, self._inventory.device_count) for session in sessions))
        return [
            session.summary()
            | {
                "memory_nbytes": memory,
                "memory_limit_nbytes": session.memory_limit_nbytes,
                "quotas": self._daemon.server.quotas(session),
                "calls_per_s": session.quotas.get("calls_per_s"),
                "worker_cpu_s": None if session.worker is None else _cpu_s(session.worker.pid),
            }
            for session, memory in zip(sessions, told, strict=True)
        ]

    # Actions

    def _session(self, number: str) -> Session:
        for session in self._daemon.server.sessions:
            if str(session.number) == number:
                return session
        raise HttpError(404, f"there is no session {number}")

    async def _kill(self, number: str, by: str) -> Response:
        session = self._session(number)
        self._audit.warning(
            "session ended by the administrator", by=by, session=session.number, tenant=session.tenant_name
        )
        self._daemon.server.end_session(session)
        return Response(document={"ended": [session.number]})

    async def _tokens_listed(self) -> Response:
        return Response(document={"tokens": [token.summary() for token in self._tokens]})

    async def _issue(self, order: dict[str, Any], by: str) -> Response:
        if unknown := set(order) - {"name", "share", "lifetime_s"}:
            raise HttpError(400, f"unknown keys: {', '.join(sorted(unknown))}")
        name, share, lifetime_s = order.get("name"), order.get("share"), order.get("lifetime_s")
        if not isinstance(name, str):
            raise HttpError(400, "name: a text is needed")
        if share is not None and (not isinstance(share, str) or self._daemon.config.share(share) is None):
            raise HttpError(400, f"share: the configuration has no [[shares]] called {share!r}")
        shortest_s, longest_s = _LIFETIMES_S
        if lifetime_s is not None and not (
            type(lifetime_s) in (int, float) and shortest_s <= lifetime_s <= longest_s  # no NaN passes
        ):
            raise HttpError(400, f"lifetime_s: a number from {shortest_s} to {longest_s} is needed")
        try:
            value = self._tokens.issue(name, share, lifetime_s)
        except TokenError as error:
            raise HttpError(409, str(error)) from error
        try:
            self._daemon.save()
        except OSError as error:
            self._tokens.revoke(name)
            raise HttpError(500, f"not issued, as it cannot be kept: {error}") from error
        self._audit.info("token issued", by=by, token=name, share=share, lifetime_s=lifetime_s)
        return Response(201, {"name": name, "value": value, "share": share, "lifetime_s": lifetime_s})

    async def _revoke(self, name: str, by: str) -> Response:
        try:
            self._tokens.revoke(name)
        except TokenError as error:
            raise HttpError(409, str(error)) from error
        except KeyError:
            raise HttpError(404, f"there is no issued token called {name!r}") from None
        ended = self._end_all(lambda session: session.token_name == name)
        self._audit.warning("token revoked", by=by, token=name, sessions_ended=ended)
        self._save()
        return Response(document={"ended": ended})

    async def _quarantined(self) -> Response:
        return Response(document={"tenants": sorted(self._daemon.server.quarantined)})

    async def _quarantine(self, tenant: str, by: str) -> Response:
        """Refuse the tenant's clients from now on, and end its sessions."""
        self._daemon.server.quarantined.add(tenant)
        ended = self._end_all(lambda session: session.tenant_name == tenant)
        self._audit.warning("tenant quarantined", by=by, tenant=tenant, sessions_ended=ended)
        self._save()
        return Response(document={"ended": ended})

    async def _release(self, tenant: str, by: str) -> Response:
        if tenant not in self._daemon.server.quarantined:
            raise HttpError(404, f"{tenant!r} is not in quarantine")
        self._daemon.server.quarantined.discard(tenant)
        self._audit.info("tenant released", by=by, tenant=tenant)
        self._save()
        return Response(document={})

    async def _devices(self) -> Response:
        states = self._daemon.server.presence.states
        names = [str(device["name"]) for device in self._inventory.fields["devices"]]
        rows = [{"device": i, "name": names[i], "out_of_service": why or None} for i, why in enumerate(states)]
        return Response(document={"devices": rows})

    def _device(self, number: str) -> int:
        if not number.isdecimal() or int(number) >= self._inventory.device_count:
            raise HttpError(404, f"there is no device {number}")
        return int(number)

    async def _withdraw(self, number: str, request: Request) -> Response:
        """End the sessions that have used the device, and refuse contexts on it until it is restored."""
        why = request.document().get("why", "withdrawn by the administrator")
        if not isinstance(why, str) or not 0 < len(why) <= 200 or not why.isprintable():
            raise HttpError(400, "why: a text of 1 to 200 printable characters is needed")
        by, bit, server = request.by, 1 << self._device(number), self._daemon.server
        ended = [each.number for each in server.sessions if server.meters.devices(each.number) & bit]
        self._audit.warning("device withdrawn", by=by, device=int(number), why=why, sessions_ended=ended)
        server.presence.withdraw(int(number), why)
        return Response(document={"ended": ended})

    async def _restore(self, number: str, by: str) -> Response:
        device = self._device(number)
        self._audit.info("device restored", by=by, device=device)
        self._daemon.server.presence.restore(device)
        return Response(document={})

    async def _restart(self, by: str) -> Response:
        """Replace this vgpud by the installed program, which continues every session."""
        generation = self._daemon.status()["generation"]
        if (why := await self._daemon.check_restart()) is not None:
            self._log.error("not restarted, as the installed vgpud refuses", why=why)
            raise HttpError(409, f"not restarted, as the installed vgpud refuses: {why}")
        self._audit.info("restart ordered", by=by, generation=generation)
        # In the next iteration of the event loop, so that the answer is written before the restart.
        asyncio.get_running_loop().call_soon(self._daemon.request_restart)
        return Response(202, {"generation": generation})

    def _save(self) -> None:
        """Save an action that is already in effect. Raises HttpError if the next restart would undo the action."""
        try:
            self._daemon.save()
        except OSError as error:
            self._log.error("the order is lost at the next restart", error=str(error))
            raise HttpError(500, f"done, but lost at the next restart: {error}") from error

    def _end_all(self, which: Callable[[Session], bool]) -> list[int]:
        found = [session for session in self._daemon.server.sessions if which(session)]
        for session in found:
            self._daemon.server.end_session(session)
        return [session.number for session in found]


def _tenants(usages: dict[str, Usage], sessions: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """What each tenant has used; the processor time of running workers comes from the kernel."""
    running: Counter[str] = Counter()
    for session in sessions:
        running[session["tenant"]] += session["worker_cpu_s"] or 0
    return {
        tenant: {
            "calls": usage.calls,
            "bytes": usage.nbytes,
            "faults": usage.faults,
            "cpu_seconds": usage.cpu_ns / 1e9 + running[tenant],
            "held_seconds": usage.held_ns / 1e9,
        }
        for tenant, usage in usages.items()
    }


async def _memory(session: Session, device_count: int) -> list[int] | None:
    told = None if session.worker is None else await session.worker.memory()
    return None if told is None else list(by_host(told, session.devices, device_count))


def _cpu_s(pid: int) -> float | None:
    """A process's processor time; None when it has just ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            words = file.read().rpartition(b") ")[2].split()
    except OSError:
        return None
    return round((int(words[11]) + int(words[12])) / _CLOCK_TICKS, 3)


def _uuid(raw: bytes) -> str:
    text = raw.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
