"""`vgpu install`, `repair` and `uninstall` without their command line: a request becomes a plan, which is carried out.

A package's scripts call these commands, too: `vgpu install` after unpacking, `vgpu uninstall` before removal.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from . import cupti, leftover, loader_cache
from .cupti import find_profilers
from .installer import Installer, InstallError
from .layout import RELEASE, STEMS, SYSTEM, Layout
from .loader_conf import Reader, obstacle
from .manifest import INSTALLED, Manifest, ManifestError, Request
from .payload import find_payload
from .plan import Item, is_plain_folder, needed_family, plan
from .preload import resolve_program, winning_rpath
from .recover import recover
from .service import Service, ServiceError, environment_files, read_service
from .tree import Tree, TreeError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_SYSTEMCTL_TIMEOUT_S = 60.0
_CONF_CAP = 1 << 16


@dataclass
class Report:
    """The result of a request: `done` lists what is installed now, `warnings` what prevents it from working."""

    done: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    is_changed: bool = False


@dataclass
class Installation:
    """The installation in a tree, changed by requests."""

    tree: Tree
    layout: Layout = SYSTEM
    payload: Path | None = None  # folder of the libraries; None: search the usual folders (payload.py)

    def __post_init__(self) -> None:
        self._installer = Installer(self.tree, self.layout)

    def manifest(self) -> Manifest | None:
        """The manifest of what is installed, or None."""
        return self._installer.manifest()

    def install(self, change: Callable[[Request, tuple[str, ...]], Request], *, dry_run: bool = False) -> Report:
        """Install the request that `change` makes of the earlier request and the available CUDA runtimes.

        Raises:
            InstallError, TreeError, ManifestError, PayloadError, ServiceError: nothing was changed, or it was undone.
        """
        with self._installer.locked():
            old = self.manifest()
            files = find_payload(self.payload)
            runtimes = tuple(path.split("/")[1] for path in files if path.startswith("cudart/"))
            before = old.request if old else Request()
            request = change(before, runtimes)
            lacking = set(request.runtimes) - set(runtimes)
            if lacking:
                raise InstallError(f"the libraries to install hold no CUDA runtime {', '.join(sorted(lacking))}")
            if self.layout is not SYSTEM and not is_plain_folder(self.tree.root):
                raise InstallError(f"{self.tree.root} has a character that LD_LIBRARY_PATH cannot hold")
            report = Report()
            services = {unit: self._service(unit, unit in before.services, report) for unit in request.services}
            preload = {unit: self._preloaded(service, files, report) for unit, service in services.items()}
            items = plan(request, files, self.layout, self.tree.root, services, preload)
            items = self._with_their_endpoint(items, old)
            if dry_run:
                return self._foretell(items, old, report)
            uses_loader = self._uses_loader(request) or (old is not None and self._uses_loader(old.request))
            caches = loader_cache.absent_caches(self.tree) if uses_loader else ()
            self._installer.refresh = (lambda: self._refresh(report)) if uses_loader else (lambda: None)
            report.is_changed = self._installer.install(request, RELEASE, items, caches)
            if not report.is_changed and uses_loader:
                self._refresh(report)
            if report.is_changed and before.services != request.services:
                self._reload(report)
            self._describe(request, services, report)
            return report

    def repair(self, *, dry_run: bool = False) -> tuple[list[str], Report]:
        """Restore everything that is missing or was changed. Returns the differences found, and the report.

        Raises:
            InstallError: nothing is installed. Otherwise as install().
        """
        lost, manifest = self._recovered(dry_run=dry_run)
        if manifest is None:
            raise InstallError(f"nothing is installed in {self.tree.root}")
        if lost and dry_run:
            return [lost], Report([f"would take over {self.tree.show(entry.path)}" for entry in manifest.entries])
        found = [str(finding) for finding in self._installer.findings(manifest)]
        if manifest.state != INSTALLED:
            found.insert(0, "an installation was interrupted")
        if lost:
            found.insert(0, lost)
        if manifest.release != RELEASE:
            found.append(f"the libraries are of release {manifest.release}, this vgpu brings {RELEASE}")
        report = self.install(lambda before, _runtimes: before, dry_run=dry_run)
        if report.is_changed and not found:
            found.append("libraries or units have changed since")
        return found, report

    def _recovered(self, *, dry_run: bool) -> tuple[str, Manifest | None]:
        """Why the manifest was lost ("" if it was not), and the manifest, rebuilt from the tree if it was."""
        try:
            manifest = self.manifest()
            lost = "" if manifest is not None else f"{self.tree.show(self.layout.manifest)} was lost"
        except ManifestError as error:
            manifest, lost = None, str(error)
        if manifest is not None:
            return "", manifest
        manifest = recover(self.tree, self.layout)
        if manifest is not None and not dry_run:
            with self._installer.locked():
                self._installer.adopt(manifest)
        return lost, manifest

    def uninstall(self, *, purge: bool = False) -> list[str] | None:
        """Remove everything. Returns what was kept because it had been changed, or None if nothing was installed."""
        with self._installer.locked():
            old = self.manifest()
            report = Report()
            if old is not None and self._uses_loader(old.request):
                self._installer.refresh = lambda: self._refresh(report)
            kept = self._installer.uninstall(purge=purge)
            if old is not None and old.request.services:
                self._reload(report)
            return kept

    def _uses_loader(self, request: Request) -> bool:
        return self.layout.loader is not None and (request.machine or bool(request.runtimes))

    # Services

    def _service(self, unit: str, is_known: bool, report: Report) -> Service:
        try:
            service = read_service(self.tree, unit)
        except ServiceError:
            if not is_known:
                raise
            report.warnings.append(f"{unit} is not there any more: vgpu uninstall --service {unit}")
            return Service(unit)
        program = service.program()
        if unit.startswith("snap.") or program.startswith("/snap/") or program == "/usr/bin/snap":
            raise ServiceError(f"{unit} is a snap, which sees no library of the system: use its package or container")
        own_root = [*service.settings.get("RootDirectory", []), *service.settings.get("RootImage", [])]
        if own_root:
            raise ServiceError(f"{unit} runs in a root of its own, {own_root[-1]}: vgpu install --root there")
        return service

    def _preloaded(self, service: Service, files: Mapping[str, Path], report: Report) -> list[str]:
        """Paths, below vgpu's folder, of the libraries to preload: libcuda if the program has an RPATH to another,
        libcupti if the program brings NVIDIA's. Empty for another root, whose programs are not examined."""
        if not self.tree.is_live or not service.program():
            return []
        try:
            binary = resolve_program(service.program(), os.defpath)
            other = winning_rpath(binary) if binary else None
        except OSError:
            return []
        wanted = []
        if other is not None:
            report.done.append(f"{service.name}: libcuda.so.1 is preloaded, for an RPATH leads to {other}")
            wanted.append("libcuda.so.1")
        variables = {name: service.variable(name) for name in ("LD_LIBRARY_PATH", "PYTHONPATH")}
        for soname, theirs in find_profilers(service.program(), variables, cached=False).items():
            file = f"{cupti.FOLDER}/{cupti.FOLDERS[soname]}/{soname}"
            if theirs is not None and file in files:
                report.done.append(f"{service.name}: {soname} is preloaded, for profilers would bind {theirs}")
                wanted.append(file)
        return wanted

    def _reload(self, report: Report) -> None:
        if not self.tree.is_live or not Path("/run/systemd/system").is_dir() or shutil.which("systemctl") is None:
            return
        try:
            command = ["systemctl", "daemon-reload"]
            result = subprocess.run(command, capture_output=True, text=True, timeout=_SYSTEMCTL_TIMEOUT_S, check=False)
            problem = result.stderr.strip() if result.returncode else ""
        except (OSError, subprocess.TimeoutExpired) as error:
            problem = str(error)
        if problem:
            report.warnings.append(f"systemctl daemon-reload failed: {problem}")

    # The endpoint: guest.conf may have been written by the administrator

    def _with_their_endpoint(self, items: list[Item], old: Manifest | None) -> list[Item]:
        """Skip a guest.conf that has the same contents and was not written by vgpu."""
        for item in items:
            path = item.entry.path
            if item.entry.kind != "configuration" or (old and any(entry.path == path for entry in old.entries)):
                continue
            if self.tree.status(path) is None:
                continue
            wanted, there = configured_endpoint(b"".join(item.content())), self.endpoint()
            if wanted != there:
                raise InstallError(
                    f"{self.tree.show(path)} is not of vgpu install and says {there or 'no endpoint'}: change it there"
                )
            return [other for other in items if other is not item]
        return items

    def endpoint(self) -> str:
        """The endpoint in the tree's guest.conf, "" if there is none."""
        try:
            return configured_endpoint(self.tree.read(self.layout.endpoint, _CONF_CAP))
        except (FileNotFoundError, ValueError):
            return ""

    # The report

    def _refresh(self, report: Report) -> None:
        problem = loader_cache.refresh(self.tree)
        if problem:
            report.warnings.append(f"ldconfig failed, run it in {self.tree.root}: {problem}")

    def _foretell(self, items: list[Item], old: Manifest | None, report: Report) -> Report:
        work = self._installer.missing_work(items, old)
        folders = [entry for entry in self._installer.folders(items, old) if self.tree.status(entry.path) is None]
        paths = [entry.path for entry in folders] + [item.entry.path for item in work]
        report.done = [f"would make {self.tree.show(path)}" for path in paths]
        wanted = {item.entry.path for item in items}
        for entry in old.entries if old else ():
            if entry.kind != "directory" and entry.path not in wanted:
                report.done.append(f"would remove {self.tree.show(entry.path)}")
        return report

    def _describe(self, request: Request, services: dict[str, Service], report: Report) -> None:
        ours = self.tree.show(self.layout.libraries)
        report.done.insert(0, f"libraries of release {RELEASE} in {ours}")
        if request.runtimes:
            where = "for programs that bring none" if self.layout is SYSTEM else "before others, by LD_LIBRARY_PATH"
            report.done.append(f"CUDA runtime {', '.join(request.runtimes)} {where}")
        if self.layout is SYSTEM:
            for stem in STEMS:
                self._describe_winner(request, report, f"{stem}.so.1")
        if request.smi and self.layout.smi:
            report.done.append(f"{self.tree.show(self.layout.smi)} is {request.smi} smi")
        for unit, service in services.items():
            self._describe_service(unit, service, request.services[unit] or request.endpoint, report)
        endpoint = request.endpoint or self.endpoint() if self.layout is SYSTEM else request.endpoint
        if endpoint:
            report.done.append(f"endpoint {endpoint}, by {self.tree.show(self.layout.endpoint)}")

    def _describe_winner(self, request: Request, report: Report, name: str) -> None:
        ours = f"/{self.layout.libraries}/{name}"
        found = loader_cache.candidates(self.tree, name)
        others = [path for path in found if path != ours]
        if not request.machine:
            if others:
                report.done.append(f"all other programs go on getting {others[0]}")
            return
        if not found or found[0] != ours:
            found_obstacle = obstacle(Reader(self._conf_text, self._conf_names), found[0] if found else "")
            command = f"; mend: {found_obstacle.mend}" if found_obstacle.mend and self.tree.is_live else ""
            report.warnings.append(f"programs do not get {ours}: {found_obstacle.why or found[:1]}{command}")
            return
        report.done.append(f"programs get {ours}, by /{self.layout.loader}")
        for path in others:
            report.done.append(
                f"{path} comes after it; a program with an RPATH or LD_LIBRARY_PATH to it still gets that"
            )

    def _conf_text(self, file: str) -> str | None:
        try:
            return self.tree.read(self.tree.follow(file.lstrip("/")), _CONF_CAP).decode(errors="replace")
        except (OSError, ValueError):
            return None

    def _conf_names(self, folder: str) -> list[str]:
        try:
            return self.tree.names(folder.lstrip("/"))
        except OSError:
            return []

    def _describe_service(self, unit: str, service: Service, endpoint: str, report: Report) -> None:
        files = environment_files(self.tree, service)
        if "LD_LIBRARY_PATH" in files:
            report.warnings.append(
                f"{unit}: {files['LD_LIBRARY_PATH']} sets LD_LIBRARY_PATH and wins: add /{self.layout.libraries} there"
            )
        families = service.settings.get("RestrictAddressFamilies", [])
        needed = needed_family(service, endpoint)
        if needed:
            report.done.append(f"{unit} may use {needed} sockets now, which its unit did not allow")
        elif any(value.startswith("~") or value == "none" for value in families):
            report.warnings.append(f"{unit} forbids kinds of sockets (RestrictAddressFamilies={' '.join(families)})")
        if endpoint.startswith("tcp:") and service.settings.get("PrivateNetwork", ["no"])[-1:] in (["yes"], ["true"]):
            report.warnings.append(f"{unit} has no network (PrivateNetwork=yes): use a unix or vsock endpoint")
        report.warnings += leftover.warnings(self.tree, service)
        hint = f"systemctl restart {unit}" if self.tree.is_live else "at its next start"
        report.done.append(f"{unit} gets the libraries by its drop-in: {hint}")


def configured_endpoint(content: bytes) -> str:
    """The endpoint in a guest.conf, "" if none; parsed as the libraries parse it."""
    found = ""
    for line in content.decode(errors="replace").splitlines():
        key, equals, value = line.partition("=")
        if equals and key.strip() == "endpoint" and value.split():
            found = value.split()[0]
    return found


def without_service(request: Request, unit: str) -> Request:
    """The request without one of its units."""
    services = {name: endpoint for name, endpoint in request.services.items() if name != unit}
    return replace(request, services=services)


__all__ = ["Installation", "Report", "TreeError", "configured_endpoint", "without_service"]
