"""All verdicts: the exit code, the meaning and the repair of each.

docs/doctor.md shows this table; a test compares them. `mend` is the usual command; a finding has the exact command.
"""

from __future__ import annotations

from dataclasses import dataclass

# Exit codes are classes: a script only distinguishes, say, library and endpoint; a person reads the verdict.
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
    """`mend` is the usual command that repairs the fault, `advice` what to do if no command can; a finding has the
    exact command. Words in capitals stand for names that the finding gives."""

    exit_code: int
    meaning: str
    mend: str
    advice: str = ""


# In order of cause: of several findings, the first one in this table is the verdict, and the others are evidence.
VERDICTS: dict[str, Verdict] = {
    "service-unknown": Verdict(SUBJECT, "there is no such service", "", "systemctl list-units --type=service '*NAME*'"),
    "program-missing": Verdict(SUBJECT, "there is no such program or file", "", "command -v NAME"),
    "process-unreadable": Verdict(SUBJECT, "the process is gone or another user's", "", "sudo vgpu doctor --pid PID"),
    "port-owned-by-other": Verdict(
        SUBJECT, "another process than this service owns the service's port", "", "vgpu doctor --pid PID"
    ),
    "preload-garbage": Verdict(
        LIBRARY,
        "/etc/ld.so.preload has a line that is not an absolute path of a library of this machine's class",
        ": >/etc/ld.so.preload  # when it is the only line; else a loop of the shell takes out the one",
    ),
    "snap-confined": Verdict(
        CONFINED,
        "a strict snap sees neither the library nor the socket: not supported, use the program's own installer",
        "",
        "sudo snap stop --disable NAME  # and install it otherwise; Ollama: docs/ollama-snap.md",
    ),
    "secure-execution": Verdict(
        CONFINED,
        "setuid, file capabilities or a profile's transition: the loader ignores the environment's paths",
        "sudo vgpu install",
    ),
    "program-static": Verdict(PROGRAM, "a static program loads no library at all", "", "rebuild it without -static"),
    "program-wrong-class": Verdict(
        PROGRAM, "the program is not for x86-64 Linux with glibc", "", "get a build for x86-64 Linux with glibc"
    ),
    "bundle-missing": Verdict(
        LIBRARY,
        "the program's own CUDA libraries are gone (an update deletes Ollama's directory)",
        "",
        "curl -fsSL https://ollama.com/install.sh -o install.sh && sh install.sh",
    ),
    "preload-missing": Verdict(
        LIBRARY,
        "LD_PRELOAD or /etc/ld.so.preload names a file that cannot be preloaded",
        "unset LD_PRELOAD  # or the rest of it; in a unit by a drop-in",
    ),
    "library-denied": Verdict(
        CONFINED,
        "the library is there, but this program's user or profile may not read it",
        "sudo chmod o+rX DIRECTORY",
    ),
    "library-damaged": Verdict(
        LIBRARY, "a file of the library's name is damaged, or no library", "sudo vgpu repair  # or: sudo rm FILE"
    ),
    "library-drift": Verdict(LIBRARY, "what was installed has changed or is missing", "sudo vgpu repair"),
    "library-dead-link": Verdict(
        LIBRARY, "a link of the library's name leads nowhere", "sudo vgpu repair  # or: sudo rm FILE"
    ),
    "library-wrong-class": Verdict(LIBRARY, "a library of another class (32-bit) is found first", "sudo vgpu install"),
    "library-rpath": Verdict(
        LIBRARY,
        "an RPATH leads to another library before any other place",
        "export LD_PRELOAD=/usr/lib/vgpu/libcuda.so.1:/usr/lib/vgpu/libnvidia-ml.so.1",
    ),
    "library-foreign": Verdict(LIBRARY, "another libcuda or libnvidia-ml is found before vgpu's", "sudo vgpu install"),
    "library-interposed": Verdict(
        LIBRARY,
        "a preloaded file defines functions of CUDA and is called in place of its libraries",
        "unset LD_PRELOAD  # or the rest of it; in a unit by a drop-in",
    ),
    "library-missing": Verdict(LIBRARY, "the loader finds no libcuda.so.1", "sudo vgpu install"),
    "two-drivers": Verdict(
        LIBRARY, "two different libcuda are mapped into one process: two driver states", "sudo systemctl restart NAME"
    ),
    "library-version": Verdict(
        LIBRARY, "vgpu's library speaks another protocol than this vgpu", "", "vgpu version  # on both sides"
    ),
    "symbol-version": Verdict(
        LIBRARY,
        "a library lacks the version tags or names that the program binds to (a replaced libcudart or libcublas)",
        "",
        "reinstall the program",
    ),
    "runtime-missing": Verdict(
        LIBRARY,
        "a CUDA library that the program needs is not found",
        "sudo vgpu install --with-cudart auto  # a libcudart; others are NVIDIA's",
    ),
    "runtime-foreign": Verdict(
        LIBRARY,
        "the CUDA runtime that the program binds does not reach the vGPU",
        "",
        "reinstall what the file came with",
    ),
    "restart-needed": Verdict(
        ENVIRONMENT,
        "the service runs with an older environment or library than its unit now gives",
        "sudo systemctl daemon-reload && sudo systemctl restart NAME",
    ),
    "service-environment": Verdict(
        ENVIRONMENT,
        "the service has neither the endpoint nor the library in its environment",
        "sudo vgpu install --service NAME && sudo systemctl daemon-reload && sudo systemctl restart NAME",
    ),
    "devices-blocked": Verdict(
        ENVIRONMENT,
        "this machine's administrator gives this user no GPU",
        "",
        "ask the administrator, who wrote the text above",
    ),
    "devices-hidden": Verdict(
        ENVIRONMENT, "CUDA_VISIBLE_DEVICES leaves no device, so nobody is asked", "unset CUDA_VISIBLE_DEVICES"
    ),
    "device-file-missing": Verdict(
        ENVIRONMENT,
        "a package looks for a device file of NVIDIA's before it asks the driver, and takes the CPU (JAX)",
        "sudo touch /dev/nvidiactl  # until the next boot; or start it by vgpu run",
    ),
    "socket-family-blocked": Verdict(
        CONFINED,
        "the service may not make sockets of the endpoint's kind (RestrictAddressFamilies=, seccomp)",
        "a drop-in with RestrictAddressFamilies= or PrivateNetwork=no (the doctor prints it)",
    ),
    "configuration-denied": Verdict(
        CONFINED,
        "guest.conf is there, and this user may not read it",
        "sudo usermod -aG GROUP USER  # the file's group; counts at the next login",
    ),
    "configuration-invalid": Verdict(
        ENDPOINT,
        "a line of guest.conf is not `key = value` with a known key",
        "sudo sed -i 'Ns/WRONG/RIGHT/' /etc/vgpu/guest.conf",
    ),
    "endpoint-none": Verdict(
        ENDPOINT,
        "no endpoint is configured: no VGPU_ENDPOINT, guest.conf, default socket, or stub device",
        "",
        "sudo vgpu install --endpoint URL  # or export VGPU_ENDPOINT=URL: who runs vgpud knows it",
    ),
    "endpoint-invalid": Verdict(
        ENDPOINT,
        "the configured endpoint cannot be understood",
        "export VGPU_ENDPOINT=URL, or its line in guest.conf (the doctor prints it)",
    ),
    "endpoint-denied": Verdict(
        CONFINED,
        "this user may not connect to vgpud's socket",
        "sudo usermod -aG GROUP USER  # the socket's group; counts at the next login",
    ),
    "endpoint-stale": Verdict(
        ENDPOINT,
        "the socket is there, but no vgpud listens on it",
        "",
        "start vgpud on its host: sudo systemctl start vgpud, or vgpud --listen URL",
    ),
    "endpoint-unreachable": Verdict(
        ENDPOINT,
        "nothing answers at the endpoint",
        "",
        "start vgpud on its host: sudo systemctl start vgpud, or vgpud --listen URL; then: vgpu doctor",
    ),
    "endpoint-mute": Verdict(
        ENDPOINT,
        "something accepts the connection and says nothing",
        "",
        "on its host: vgpu status, and vgpud's log (journalctl -u vgpud, where systemd runs it)",
    ),
    "endpoint-foreign": Verdict(
        ENDPOINT,
        "what listens at the endpoint is not vgpud",
        "",
        "ss -lpn  # on its host: what listens there; correct the endpoint",
    ),
    "endpoint-version": Verdict(
        ENDPOINT,
        "vgpud there speaks another version of the protocol",
        "",
        "vgpu version  # on both sides; update the older",
    ),
    "token-missing": Verdict(
        ENDPOINT,
        "vgpud wants a token, and none is configured here",
        "",
        "a line `token = SECRET` in guest.conf, or VGPU_TOKEN: one of [[tokens]] in vgpud's configuration",
    ),
    "token-wrong": Verdict(
        ENDPOINT,
        "vgpud does not know the token that is configured here",
        "",
        "compare `token` in guest.conf, or VGPU_TOKEN, with [[tokens]] in vgpud's configuration",
    ),
    "token-short": Verdict(
        ENDPOINT,
        "the token that is configured here cannot be one: tokens have 16 to 256 characters",
        "",
        "a line `token = SECRET` in guest.conf, or VGPU_TOKEN: one of [[tokens]] in vgpud's configuration",
    ),
    "endpoint-refused": Verdict(
        ENDPOINT,
        "vgpud refuses this client; the reason is its own",
        "",
        "the reason is vgpud's; its log has more (journalctl -u vgpud, where systemd runs it)",
    ),
    "runtime-too-new": Verdict(
        PROGRAM,
        "the program's CUDA runtime needs a newer driver than the endpoint has",
        "",
        "vgpu devices  # the driver there; use a build of the program for that CUDA version",
    ),
    "functions-missing": Verdict(
        PROGRAM,
        "the program imports functions that the library does not export",
        "",
        "vgpu api  # lists what there is",
    ),
    "tables-missing": Verdict(
        PROGRAM,
        "the program asks for a private table that the library does not serve",
        "",
        "vgpu run --trace -- COMMAND",
    ),
    "machine-code-made": Verdict(
        PROGRAM,
        "a package that the program imports makes machine code, unless it is told to make PTX",
        "export NAME=VALUE  # the doctor prints what the package needs",
    ),
    "no-device-code": Verdict(
        PROGRAM,
        "the program's kernels exist only as machine code that the endpoint's devices cannot run",
        "",
        "nvcc -gencode arch=compute_75,code=compute_75 ...  # rebuild with PTX, or use an endpoint with that GPU",
    ),
    "function-unsupported": Verdict(
        PROGRAM,
        "the program calls functions that vgpu does not implement (801)",
        "",
        "vgpu api  # lists what there is; the program works as far as it does without these",
    ),
    "session-lost": Verdict(
        ENDPOINT,
        "the worker or vgpud ended, or a kernel faulted: later calls fail",
        "",
        "the line of vgpu's log says why; VGPU_LOG=info COMMAND shows it again",
    ),
    "nvml-failed": Verdict(
        ENDPOINT, "libnvidia-ml does not reach the vGPU, though libcuda does", "", "VGPU_LOG=info vgpu smi"
    ),
    "cuinit-failed": Verdict(ENDPOINT, "all looks right, and cuInit fails", "", "VGPU_LOG=info COMMAND"),
    "library-crashed": Verdict(
        LIBRARY, "the library ends the process, or never comes back", "", "sudo vgpu repair, then VGPU_LOG=info COMMAND"
    ),
    "unknown": Verdict(FAILED, "the doctor itself could not find out", "", "sudo vgpu doctor ..."),
    "ok": Verdict(OK, "the program reaches the vGPU", ""),
}
ORDER = {kind: index for index, kind in enumerate(VERDICTS)}
