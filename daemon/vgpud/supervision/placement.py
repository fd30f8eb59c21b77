"""Where a session's worker runs: in a control group of its own, or, without those, with a nice value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vgpud.config import WEIGHT_DEFAULT
from vgpud.log import get_logger

from .balance import Balance
from .cgroup import CgroupError, Cgroups, nice_of

if TYPE_CHECKING:
    from pathlib import Path

    from vgpud.config import Config
    from vgpud.tenancy.session import Session


class Placement:
    """Places all workers of one vgpud."""

    def __init__(self) -> None:
        self.missing: tuple[str, ...] = ()
        self._cgroups: Cgroups | None = None
        self._balance = Balance()

    def start(self, config: Config) -> None:
        """Set up vgpud's control group as a subtree, or log that there is none."""
        try:
            self._cgroups = Cgroups.open()
        except CgroupError as error:
            self.missing = ("control group",)
            log = get_logger()
            log.info("workers have no control groups: weights are kept by nice values", why=str(error))
            if config.limits.worker_memory_mib is not None:
                log.error("limits.worker_memory_mib is not enforced: workers have no control groups")

    def place(self, pid: int, session: Session, config: Config) -> Path | None:
        """Move a session's worker to its control group or set its nice value. Returns the group, for leave(), if there
        is one.
        """
        weight, nbytes = _bounds(session, config)
        if self._cgroups is not None:
            group = self._cgroups.enter(pid, session.number, session.tenant, weight, nbytes)
            if group is not None:
                return group
            session.log.warning("the worker has no control group of its own", worker=pid)
        weights = [each.weight for each in config.shares if each.weight is not None]
        if weights and config.backend == "simulator":
            try:
                self._balance.add(pid, session.tenant, weight or WEIGHT_DEFAULT, nice_of(weight, weights))
            except OSError as error:
                session.log.warning("the weight is not kept", worker=pid, error=str(error))
        return None

    def adopt(self, pid: int, group: Path | None, session: Session, config: Config) -> None:
        """Count a worker that the previous vgpud started."""
        if self._cgroups is None or group is None:
            self.place(pid, session, config)
        else:
            self._cgroups.adopt(group, *_bounds(session, config))

    def end_others(self) -> None:
        """End workers that a crashed vgpud left and that were not adopted."""
        if self._cgroups is not None:
            self._cgroups.end_others()

    def leave(self, pid: int, group: Path | None) -> None:
        """Undo place() for a worker that has ended."""
        if self._cgroups is not None and group is not None:
            self._cgroups.leave(group)
        self._balance.remove(pid)


def _bounds(session: Session, config: Config) -> tuple[int | None, int | None]:
    """The tenant's weight, and the bytes of memory that a worker may use."""
    share, memory_mib = config.share(session.share), config.limits.worker_memory_mib
    return None if share is None else share.weight, None if memory_mib is None else memory_mib << 20
