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
    """A fault: its kind is a key of VERDICTS, `text` what was seen.

    `mend` is the command that repairs it; `advice` describes what to do if no command can.
    """

    kind: str
    text: str
    mend: str
    advice: str = ""


@dataclass
class Diagnosis:
    """Filled by the checks, in any order."""

    subject: Subject | None = None
    findings: list[Finding] = field(default_factory=list)
    evidence: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)  # true, but not in the way of reaching the vGPU
    libraries: dict[str, Any] = field(default_factory=dict)
    endpoint: dict[str, Any] = field(default_factory=dict)
    probe: dict[str, Any] = field(default_factory=dict)
    need: dict[str, Any] = field(default_factory=dict)
    listing: Listing | None = None  # the loader's, of the program
    installs: list[dict[str, Any]] = field(default_factory=list)  # of Ollama
    proven: bool = False  # a real cuInit in the program's environment returned 0 and showed a device

    def add(self, kind: str, text: str, mend: str = "", advice: str = "") -> None:
        """Add a fault; `mend` and `advice` default to the table's. A repeated fault is listed once."""
        if not mend and not advice:
            mend, advice = VERDICTS[kind].mend, VERDICTS[kind].advice
        if "sudo vgpu " in mend:
            mend = mend.replace("sudo vgpu ", f"sudo {vgpu()} ")
        finding = Finding(kind, text, mend, advice)
        if finding not in self.findings:
            self.findings.append(finding)

    @property
    def finding(self) -> Finding:
        """The verdict: the earliest cause of the table. Without a proof it is never "ok"."""
        if self.findings:
            return min(self.findings, key=lambda finding: ORDER[finding.kind])
        if self.proven:
            return Finding("ok", self.evidence[0] if self.evidence else "", "")
        return Finding("unknown", "nothing is wrong that the doctor knows of, but cuInit was not seen to work", "")

    @property
    def verdict(self) -> Verdict:
        """The table's entry for it."""
        return VERDICTS[self.finding.kind]

    @property
    def others(self) -> list[Finding]:
        """The other faults, in the table's order."""
        first = self.finding
        return sorted((f for f in self.findings if f is not first), key=lambda finding: ORDER[finding.kind])

    def as_json(self) -> dict[str, Any]:
        """The stable form: `schema` rises when a key changes its meaning; new keys may come without."""
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
