"""How vgpud starts its workers, by its configuration: by a command, or by a loader, whose launchers fork them. With the
user ids that they get.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from vgpud.devices.mps import PIPE_DIRECTORY
from vgpud.supervision.child_environment import child_environment
from vgpud.supervision.launcher_spawner import LauncherSpawner
from vgpud.supervision.spawner import CommandSpawner, Spawner
from vgpud.supervision.user_namespace import drop_capabilities, make
from vgpud.worker.user_ids import format_ids, parse_ids

if TYPE_CHECKING:
    from collections.abc import Callable

    from vgpud.config import Config

    from .succession import Incoming, Outgoing


class WorkerSource:
    """The spawner, and the user namespace that its workers' user ids are mapped in, if they are not the host's. Making
    it drops CAP_SETUID and CAP_SETGID, which nothing later needs.
    """

    def __init__(self, config: Config, gpus: str, on_missing: Callable[[], None], incoming: Incoming | None) -> None:
        """`gpus`: the devices that workers simulate. `on_missing`: called when it is known what of a worker's isolation
        the kernel refuses. `incoming`: has the previous vgpud's namespace, which running workers are in.
        """
        self._config = config
        self._namespace: tuple[int, range] | None = None  # its descriptor, and the workers' ids in it
        self.spawner = self._make(gpus, on_missing, incoming)

    def dump_namespace(self, outgoing: Outgoing) -> dict[str, Any] | None:
        """For the next vgpud; None: there is no namespace."""
        if self._namespace is None:
            return None
        return {"fd": outgoing.add(self._namespace[0]), "ids": format_ids(self._namespace[1])}

    def _make(self, gpus: str, on_missing: Callable[[], None], incoming: Incoming | None) -> Spawner:
        config = self._config
        environment = child_environment()
        if config.mps is not None:
            environment[PIPE_DIRECTORY] = config.mps.pipe_directory
        if config.worker_command:
            drop_capabilities()
            return CommandSpawner(config.worker_command, environment)
        # `-P` keeps the working directory off the module path: a worker runs our code, wherever vgpud was started.
        loader = [sys.executable, "-P", "-m", "vgpud.worker.loader"]
        options = ["--backend", config.backend, "--libcuda", config.libcuda, "--gpus", gpus]
        try:
            if config.mps is not None:
                raise OSError("a server of MPS has clients of one user")
            ids = self._reserve_user_ids(incoming)
            options += ["--user-ids", format_ids(ids)]
        except OSError as error:
            ids = None
            options += ["--no-user-ids", str(error)]
        drop_capabilities()
        fd = None if self._namespace is None else self._namespace[0]
        return LauncherSpawner([*loader, *options], environment, on_missing, fd, ids)

    def _reserve_user_ids(self, incoming: Incoming | None) -> range:
        """The workers' user ids, of the host or of a namespace. Raises OSError: why there are none."""
        ids = parse_ids(self._config.worker_ids)
        if os.geteuid() == 0:
            return ids
        before = None if incoming is None else incoming.document.get("user_namespace")
        if before is not None and incoming is not None:
            self._namespace = incoming.take(before["fd"]), parse_ids(before["ids"])
        else:
            self._namespace = make(ids)
        return self._namespace[1]
