"""`start_unit.py NAME`: run a service's command in the environment that systemd would give it, without systemd.

It reads the unit in /etc/systemd/system, then its drop-ins in the order of their names. The environment has PATH, LANG
and what these files set, nothing else. A setting in [Service] that is not in KNOWN is an error.
"""

import os
import re
import shlex
import sys
from pathlib import Path

KNOWN = ("Environment", "ExecStart", "Type", "Restart", "User")
unit = Path("/etc/systemd/system", f"{sys.argv[1]}.service")
environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin", "LANG": "C.UTF-8"}
command: list[str] = []
for file in [unit, *sorted(Path(f"{unit}.d").glob("*.conf"))]:
    section = ""
    for line in file.read_text().splitlines():
        if line.startswith("["):
            section = line
        setting = re.fullmatch(r"([A-Za-z]+)=(.*)", line)
        if section != "[Service]" or not setting:
            continue
        assert setting[1] in KNOWN, line
        if setting[1] == "Environment":
            for word in shlex.split(setting[2]):
                name, _, value = word.partition("=")
                environment[name] = value
        if setting[1] == "ExecStart":
            command = shlex.split(setting[2])
os.execve(command[0], command, environment)
