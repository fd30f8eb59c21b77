"""What the checks found, and the one verdict that follows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .mend import vgpu
from .verdict import ORDER, VERDICTS, Verdict

if TYPE_CHECKING:
    from .loader import Listing
    from .subject import Subject


@dataclass(frozen=True)
class Finding:
    """A fault: `kind` is a key of VERDICTS, `text` says what was observed.

    `mend` is the command that repairs it; `advice` describes what to do if no command can.
    """

    kind: str
    text: str
    mend: str
    advice: str = ""


@dataclass
class Diagnosis:
    """The results of all checks, which may run in any order."""

    subject: Subject | None = None
    findings: list[Finding] = field(default_factory=list)
    evidence: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)  # facts that do not prevent the program from reaching the vGPU
    libraries: dict[str, Any] = field(default_factory=dict)
    endpoint: dict[str, Any] = field(default_factory=dict)
    probe: dict[str, Any] = field(default_factory=dict)
    need: dict[str, Any] = field(default_factory=dict)
    listing: Listing | None = None  # the loader's answer for the program
    installs: list[dict[str, Any]] = field(default_factory=list)  # Ollama installations
    proven: bool = False  # a real cuInit in the program's environment returned 0 and showed a device

    def add(self, kind: str, text: str, mend: str = "", advice: str = "") -> None:
        """Add a fault; `mend` and `advice` default to those in VERDICTS. A repeated fault is listed once."""
        if not mend and not advice:
            mend, advice = VERDICTS[kind].mend, VERDICTS[kind].advice
        if "sudo vgpu " in mend:
            mend = mend.replace("sudo vgpu ", f"sudo {vgpu()} ")
        finding = Finding(kind, text, mend, advice)
        if finding not in self.findings:
            self.findings.append(finding)

    @property
    def finding(self) -> Finding:
        """The fault that comes first in VERDICTS. Without faults it is "ok" only if the probe succeeded."""
        if self.findings:
            return min(self.findings, key=lambda finding: ORDER[finding.kind])
        if self.proven:
            return Finding("ok", self.evidence[0] if self.evidence else "", "")
        return Finding("unknown", "nothing is wrong that the doctor knows of, but cuInit was not seen to work", "")

    @property
    def verdict(self) -> Verdict:
        """The entry of `finding` in VERDICTS."""
        return VERDICTS[self.finding.kind]

    @property
    def others(self) -> list[Finding]:
        """The other faults, in the order of VERDICTS."""
        first = self.finding
        return sorted((f for f in self.findings if f is not first), key=lambda finding: ORDER[finding.kind])

    def as_json(self) -> dict[str, Any]:
        """The stable JSON form: `schema` increases when a key changes its meaning, not when keys are added."""
        first = self.finding
        subject = self.subject
        return {
            "schema": 1,
            "verdict": first.kind,
            "exit_code": self.verdict.exit_code,
            "text": first.text,
            "meaning": self.verdict.meaning,
            "mend": first.mend,
            "advice": first.advice,
            "subject": None
            if subject is None
            else {
                "kind": subject.kind,
                "label": subject.label,
                "program": subject.program,
                "pids": subject.pids,
                "root": subject.place.root_path,
            },
            "others": [{"verdict": f.kind, "text": f.text, "mend": f.mend, "advice": f.advice} for f in self.others],
            "warnings": self.warnings,
            "evidence": self.evidence,
            "libs": self.libraries,
            "endpoint": self.endpoint,
            "probe": self.probe,
            "need": self.need,
            "ollama": self.installs,
        }
