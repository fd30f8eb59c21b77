"""Commands that start another command: which command that is, and its environment."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass

_SERVICE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"  # PATH of systemd services and sudo
SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "csh", "tcsh", "busybox")
# Characters with a meaning in a shell: a command line that contains one is not split into words here.
_SHELL_SYNTAX = re.compile(r"[;&|<>()$`*?\[\]{}~#!\n\\]")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
# The variables that sudo keeps by default (sudoers(5), env_reset).
_KEPT_BY_SUDO = ("TERM", "DISPLAY", "XAUTHORITY", "LANG", "LANGUAGE", "COLORTERM", "HOME", "USER", "LOGNAME", "SHELL")
_STEPS_CAP = 16


@dataclass(frozen=True)
class _Wrapper:
    """The syntax of a wrapper: options (`with_value`: with the next word as value), `words` words, the command."""

    with_value: tuple[str, ...] = ()
    words: int = 0
    assigns: bool = False  # whether NAME=VALUE words come before the command
    words_between: tuple[str, ...] = ()  # words that may occur among the options


_PLAIN = _Wrapper()
_WRAPPERS = {
    "env": _Wrapper(("-u", "--unset", "-C", "--chdir"), assigns=True),
    "sudo": _Wrapper(("-u", "-g", "-h", "-p", "-C", "-T", "-r", "-t", "-U", "-R", "-D", "--user", "--group"), 0, True),
    "doas": _Wrapper(("-u", "-C")),
    "nice": _Wrapper(("-n", "--adjustment")),
    "time": _Wrapper(("-o", "-f", "--output", "--format")),
    "stdbuf": _Wrapper(("-i", "-o", "-e")),
    "ionice": _Wrapper(("-c", "-n")),
    "timeout": _Wrapper(("-k", "-s"), words=1),
    "taskset": _Wrapper(words=1),
    "chrt": _Wrapper(("-T", "-P", "-D"), words=1),
    "flock": _Wrapper(("-w", "-E"), words=1),
    "setarch": _Wrapper(words_between=("x86_64", "i386", "i686", "linux32", "linux64", "uname26")),
    "numactl": _Wrapper(("-N", "-m", "-C", "-i", "-p", "--cpunodebind", "--membind", "--physcpubind")),
    "unshare": _Wrapper(("-S", "-G", "-R", "-w")),
    "setpriv": _Wrapper(("--reuid", "--regid", "--groups", "--bounding-set", "--inh-caps", "--ambient-caps")),
    "strace": _Wrapper(("-o", "-e", "-p", "-s", "-u", "-E", "-a", "-b", "-O", "-S", "-P", "-X", "-I")),
    "ltrace": _Wrapper(("-o", "-e", "-p", "-s", "-u", "-a", "-n", "-l", "-x")),
    "xargs": _Wrapper(("-I", "-n", "-P", "-s", "-d", "-E", "-L", "-a")),
    "gdb": _Wrapper(("-ex", "-x", "-iex")),
    "ld-linux-x86-64.so.2": _Wrapper(("--library-path", "--preload", "--argv0", "--inhibit-rpath", "--audit")),
    "runuser": _Wrapper(("-u", "-g", "-G")),
    **dict.fromkeys(("nohup", "setsid", "prlimit", "linux64", "valgrind", "catchsegv", "dbus-run-session"), _PLAIN),
    **dict.fromkeys(("command", "exec", "builtin"), _PLAIN),  # shell builtins
}
_WITH_A_COMMAND_LINE = ("su", "sg", "script", "runuser")  # option -c takes a command line, as in a shell


@dataclass
class Unwrapped:
    """The innermost command. The `environment` of unwrap() is changed to that command's. `notes`: what is unknown."""

    words: list[str]
    notes: list[str]


def unwrap(command: list[str], environment: dict[str, str]) -> Unwrapped:
    """Strip commands that only start another command; changes `environment` as they do."""
    found = Unwrapped(list(command), [])
    for _ in range(_STEPS_CAP):
        name = os.path.basename(found.words[0])
        inner = _of_shell(name, found.words[1:], environment, found.notes)
        if inner is None and name in _WRAPPERS:
            inner = _behind(name, found.words[1:], environment, found.notes)
        if not inner:
            break
        found.words = inner
    return found


def _of_shell(name: str, rest: list[str], environment: dict[str, str], notes: list[str]) -> list[str] | None:
    """The command in a shell's -c, if that runs one program, or the applet of busybox; else None."""
    if name == "busybox":
        return rest if rest and (os.path.basename(rest[0]) in {*SHELLS, *_WRAPPERS} - {"busybox"}) else None
    if name in SHELLS:
        flags = next((at for at, word in enumerate(rest) if re.fullmatch(r"-[a-z]*c", word)), None)
        is_login = any(re.fullmatch(r"-[a-z]*[li][a-z]*|--login", word) for word in rest[: (flags or 0) + 1])
    elif name in _WITH_A_COMMAND_LINE:
        flags = next((at for at, word in enumerate(rest) if re.fullmatch(r"-[a-z]*c|--command", word)), None)
        is_login = any(word in ("-", "-l", "--login") for word in rest)
    else:
        return None
    words = [] if flags is None or flags + 1 >= len(rest) else _words(rest[flags + 1], environment)
    if words and is_login:
        notes.append(f"{name} reads its profile first, which may change the environment: it was not read")
    if words and name in ("su", "runuser"):
        notes.append(f"{name} starts it as another user: what that user may read was not looked at")
    return words or None


def _words(line: str, environment: dict[str, str]) -> list[str]:
    """The words of a shell's command line; [] if it is more than one program with arguments and variables."""
    if _SHELL_SYNTAX.search(re.sub(r"'[^']*'", "", line)):
        return []
    try:
        words = shlex.split(line)
    except ValueError:
        return []
    assigned = {}
    while words and (match := _ASSIGNMENT.fullmatch(words[0])):
        assigned[match[1]] = match[2]
        words.pop(0)
    if words:
        environment.update(assigned)
    return words


def _behind(name: str, rest: list[str], environment: dict[str, str], notes: list[str]) -> list[str] | None:
    """A wrapper's command, [] if there is none; `environment` becomes the command's environment."""
    wrapper, options, assigned = _WRAPPERS[name], [], {}
    while rest:
        word = rest[0]
        if word == "--":
            rest = rest[1:]
            break
        if wrapper.assigns and (match := _ASSIGNMENT.fullmatch(word)):
            assigned[match[1]] = match[2]
            rest = rest[1:]
        elif word in wrapper.words_between:
            rest = rest[1:]
        elif word.startswith("-"):
            rest = rest[1:]
            if name == "env" and (split := re.fullmatch(r"(?:-S|--split-string=?)(.*)", word, re.DOTALL)):
                rest = [*shlex.split(split[1] or (rest.pop(0) if rest else "")), *rest]
                continue
            value = rest.pop(0) if word in wrapper.with_value and rest else ""
            options.append((word, value))
        else:
            break
    rest = rest[wrapper.words :]
    if not rest:
        return []
    _set_environment(name, options, environment, notes)
    environment.update(assigned)
    return rest


def _set_environment(name: str, options: list[tuple[str, str]], environment: dict[str, str], notes: list[str]) -> None:
    """Change `environment` as a wrapper changes it for its command."""
    given = {option for option, _value in options}
    if name == "env":
        if given & {"-i", "-", "--ignore-environment"}:
            environment.clear()
        for option, value in options:
            unset = value if option in ("-u", "--unset") else option.removeprefix("--unset=").removeprefix("-u")
            if option.startswith(("-u", "--unset")):
                environment.pop(unset, None)
    elif name in ("sudo", "doas"):
        preserved = [
            part for option in given if option.startswith("--preserve-env=") for part in option[15:].split(",")
        ]
        keeps_all = name == "sudo" and bool(given & {"-E", "--preserve-env"})
        for key in list(environment):
            is_of_loader = key.startswith("LD_")  # the loader of a setuid program removes them
            if is_of_loader or not (keeps_all or key in _KEPT_BY_SUDO or key.startswith("LC_") or key in preserved):
                del environment[key]
        if not keeps_all:
            environment["PATH"] = _SERVICE_PATH
        notes.append(f"{name} is taken to be as it is installed, which leaves this environment: {_names(environment)}")
    elif name.startswith("ld-linux"):
        for option, value in options:
            if option == "--library-path":
                environment["LD_LIBRARY_PATH"] = value
            elif option == "--preload":
                environment["LD_PRELOAD"] = value


def _names(environment: dict[str, str]) -> str:
    return " ".join(sorted(environment)) or "nothing"


def unfollowed(program: str, arguments: list[str]) -> list[str]:
    """Notes about programs that may start another program, which is not examined: a shell with a script, or a program
    with the path of another as an argument."""
    base = os.path.basename(program)
    if base in SHELLS and arguments:
        return [f"{program} was looked at, not what its script starts: vgpu doctor -- PROGRAM looks at that"]
    if re.match(r"python|perl|ruby|node|java|lua|php", base):  # an executable argument is the script that they run
        return []
    started = next((word for word in arguments if word.startswith(("/", "./", "../")) and _is_program(word)), None)
    if started is None:
        return []
    return [f"{program} was looked at; if it starts {started}: vgpu doctor -- {shlex.quote(started)}"]


def _is_program(file: str) -> bool:
    return os.path.isfile(file) and os.access(file, os.X_OK)
