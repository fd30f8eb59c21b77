"""All verdicts: their exit codes, what each means, and what mends it.

docs/doctor.md shows this table; a test compares. `mend` is the usual command; the finding has the one for the case.
"""

from __future__ import annotations

from dataclasses import dataclass

# Exit codes are classes: a script asks "is it the library or the endpoint?", a person reads the verdict.
OK, FAILED, USAGE = 0, 1, 2
LIBRARY, ENVIRONMENT, CONFINED, ENDPOINT, PROGRAM, SUBJECT = 10, 20, 30, 40, 50, 60

CLASSES = {
    OK: "the program reaches the vGPU",
    FAILED: "the doctor itself could not find out",
    USAGE: "wrong use",
    LIBRARY: "the loader gives the program another library, or none",
    ENVIRONMENT: "the program's environment hides the vGPU",
    CONFINED: "the program is not allowed to reach it",
    ENDPOINT: "vgpud does not answer as it should",
    PROGRAM: "the program itself cannot run there",
    SUBJECT: "there is nothing to look at, or something else than was meant",
}


@dataclass(frozen=True)
class Verdict:
    """`mend` is a command, or a command's template: {service}, FILE, {name}, ... come from the finding."""

    exit_code: int
    meaning: str
    mend: str


# In the order of causes: when several are found, the first of this table is the verdict and the others are evidence.
VERDICTS: dict[str, Verdict] = {
    "service-unknown": Verdict(SUBJECT, "there is no such service", "systemctl list-units --type=service '*NAME*'"),
    "program-missing": Verdict(SUBJECT, "there is no such program or file", "command -v NAME"),
    "process-unreadable": Verdict(SUBJECT, "the process is gone or another user's", "sudo vgpu doctor --pid PID"),
    "port-owned-by-other": Verdict(
        SUBJECT, "another process than this service owns the service's port", "vgpu doctor --pid PID"
    ),
    "preload-garbage": Verdict(
        LIBRARY,
        "/etc/ld.so.preload has a line that is not an absolute path of a library of this machine's class",
        ": >/etc/ld.so.preload  # when it is the only line; else a loop of the shell takes out the one",
    ),
    "snap-confined": Verdict(
        CONFINED,
        "a strict snap sees neither the library nor the socket: not supported, use the program's own installer",
        "sudo snap stop --disable NAME  # and install it otherwise; Ollama: docs/ollama-snap.md",
    ),
    "secure-execution": Verdict(
        CONFINED,
        "setuid, file capabilities or a profile's transition: the loader ignores the environment's paths",
        "vgpu install",
    ),
    "program-static": Verdict(
        PROGRAM, "a static program loads no library at all", "file FILE  # rebuild it without -static"
    ),
    "program-wrong-class": Verdict(PROGRAM, "the program is not for x86-64 Linux with glibc", "file FILE"),
    "bundle-missing": Verdict(
        LIBRARY,
        "the program's own CUDA libraries are gone (an update deletes Ollama's directory)",
        "curl -fsSL https://ollama.com/install.sh -o install.sh && sh install.sh",
    ),
    "preload-missing": Verdict(
        LIBRARY,
        "LD_PRELOAD or /etc/ld.so.preload names a file that cannot be preloaded",
        "edit what names it (the doctor says where)",
    ),
    "library-denied": Verdict(
        CONFINED,
        "the library is there, but this program's user or profile may not read it",
        "the doctor names the directory, socket or profile",
    ),
    "library-drift": Verdict(LIBRARY, "what was installed has changed or is missing", "vgpu repair"),
    "library-dead-link": Verdict(LIBRARY, "a link of the library's name leads nowhere", "vgpu repair"),
    "library-wrong-class": Verdict(LIBRARY, "a library of another class (32-bit) is found first", "sudo vgpu install"),
    "library-damaged": Verdict(
        LIBRARY, "a file of the library's name is no library", "ls -l FILE  # remove or mend it"
    ),
    "library-rpath": Verdict(
        LIBRARY,
        "an RPATH in the program leads to another libcuda before any other place",
        "export LD_PRELOAD=/usr/lib/vgpu/libcuda.so.1",
    ),
    "library-foreign": Verdict(LIBRARY, "another libcuda is found before vgpu's", "sudo vgpu install"),
    "library-missing": Verdict(LIBRARY, "the loader finds no libcuda.so.1", "sudo vgpu install"),
    "two-drivers": Verdict(
        LIBRARY, "two different libcuda are mapped into one process: two driver states", "sudo systemctl restart NAME"
    ),
    "library-version": Verdict(LIBRARY, "vgpu's library speaks another protocol than this vgpu", "vgpu repair"),
    "symbol-version": Verdict(
        LIBRARY,
        "a library lacks the version tags or names that the program binds to (a replaced libcudart or libcublas)",
        "reinstall the program",
    ),
    "runtime-missing": Verdict(
        LIBRARY,
        "a CUDA library that the program needs is not found",
        "vgpu run --cudart ours -- COMMAND  # or reinstall the program",
    ),
    "restart-needed": Verdict(
        ENVIRONMENT,
        "the service runs with an older environment or library than its unit now gives",
        "sudo systemctl restart NAME",
    ),
    "service-environment": Verdict(
        ENVIRONMENT,
        "the service has neither the endpoint nor the library in its environment",
        "vgpu install --service NAME",
    ),
    "devices-hidden": Verdict(
        ENVIRONMENT, "CUDA_VISIBLE_DEVICES leaves no device, so nobody is asked", "unset CUDA_VISIBLE_DEVICES"
    ),
    "socket-family-blocked": Verdict(
        CONFINED,
        "the service may not make sockets of the endpoint's kind (RestrictAddressFamilies=, seccomp)",
        "the doctor names the directory, socket or profile",
    ),
    "endpoint-none": Verdict(
        ENDPOINT,
        "no endpoint is configured: no VGPU_ENDPOINT, guest.conf, default socket, or stub device",
        "echo 'endpoint = unix:/run/vgpu/vgpud.sock' | sudo tee /etc/vgpu/guest.conf",
    ),
    "endpoint-invalid": Verdict(
        ENDPOINT, "the configured endpoint cannot be understood", "edit what names it (the doctor says where)"
    ),
    "endpoint-denied": Verdict(
        CONFINED, "this user may not connect to vgpud's socket", "the doctor names the directory, socket or profile"
    ),
    "endpoint-stale": Verdict(
        ENDPOINT,
        "the socket is there, but no vgpud listens on it",
        "systemctl restart vgpud.socket vgpud  # on the host",
    ),
    "endpoint-unreachable": Verdict(
        ENDPOINT, "nothing answers at the endpoint", "systemctl start vgpud  # on the host; then: vgpu ping"
    ),
    "endpoint-mute": Verdict(
        ENDPOINT, "something accepts the connection and says nothing", "systemctl status vgpud  # on the host"
    ),
    "endpoint-foreign": Verdict(
        ENDPOINT,
        "what listens at the endpoint is not vgpud",
        "ss -lptn  # on the host; correct the endpoint in its configuration",
    ),
    "endpoint-version": Verdict(
        ENDPOINT,
        "vgpud there speaks another version of the protocol",
        "vgpu version  # on both sides; update the older",
    ),
    "endpoint-refused": Verdict(
        ENDPOINT, "vgpud refuses this client; the reason is its own", "journalctl -u vgpud  # on the host"
    ),
    "runtime-too-new": Verdict(
        PROGRAM, "the program's CUDA runtime needs a newer driver than the endpoint has", "vgpu devices"
    ),
    "functions-missing": Verdict(
        PROGRAM, "the program imports functions that the library does not export", "vgpu api  # lists what there is"
    ),
    "tables-missing": Verdict(
        PROGRAM, "the program asks for a private table that the library does not serve", "vgpu run --trace -- COMMAND"
    ),
    "no-device-code": Verdict(
        PROGRAM,
        "the program's kernels exist only as machine code that the endpoint's devices cannot run",
        "nvcc -gencode arch=compute_75,code=compute_75 ...  # rebuild with PTX, or use an endpoint with that GPU",
    ),
    "function-unsupported": Verdict(
        PROGRAM, "the program calls functions that vgpu does not implement (801)", "vgpu api"
    ),
    "session-lost": Verdict(
        ENDPOINT,
        "the worker or vgpud ended, or a kernel faulted: later calls fail",
        "journalctl -u vgpud  # on the host",
    ),
    "cuinit-failed": Verdict(ENDPOINT, "all looks right, and cuInit fails", "VGPU_LOG=info COMMAND"),
    "library-crashed": Verdict(LIBRARY, "the library ends the process, or never comes back", "vgpu repair"),
    "unknown": Verdict(FAILED, "the doctor itself could not find out", "sudo vgpu doctor ..."),
    "ok": Verdict(OK, "the program reaches the vGPU", ""),
}
ORDER = {kind: index for index, kind in enumerate(VERDICTS)}
