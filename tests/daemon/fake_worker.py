"""A worker without an executor: it answers the supervisor like the real one, then echoes its client's bytes.

Run as `python fake_worker.py MODE --control-fd N`. Modes:
    echo
    deaf                ignores SIGTERM and its client's death
    broken              exits at once
    broken-while:PATH   exits at once so long as the file exists
    hung                is never ready
    cold                cannot create a context before it has a client
    short-lived:N:PATH  the first N workers, counted in the file at PATH, exit when they get their client
    mute                takes the session but never attaches
    noisy               writes hostile lines to standard error
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time

from vgpud.worker.control import Control, send_attached


def answer_vgpud(control: Control) -> None:
    """End with vgpud, and answer that nothing is known of memory."""
    with socket.socket(fileno=os.dup(control.fileno())) as questions:
        while questions.recv(65536):
            control.send("memory", nbytes=None)
    os._exit(0)


def main() -> None:
    mode = sys.argv[1]
    if mode == "broken" or (mode.startswith("broken-while:") and os.path.exists(mode.removeprefix("broken-while:"))):
        sys.exit("broken on purpose")
    control = Control(int(sys.argv[sys.argv.index("--control-fd") + 1]))
    if mode == "hung":
        time.sleep(600)
    if "--warm" in sys.argv:
        control.receive_warm_order()
        if mode == "cold":
            control.send("ready", why="no room on purpose")
            sys.exit(1)
    control.send("ready")
    assignment = control.receive_assignment()
    if assignment is None:
        return
    if mode.startswith("short-lived:"):
        _, count, path = mode.split(":", 2)
        with open(path, "a+b", buffering=0) as file:
            file.write(b".")
            if file.tell() <= int(count):
                sys.exit("ended on purpose")
    threading.Thread(target=answer_vgpud, args=(control,), daemon=True).start()
    if mode == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if mode == "mute":
        time.sleep(600)
    if mode == "noisy":
        os.write(2, b"one\x1b[31m\rforged\n" + b"spam\n" * 500)
    control.send("attached")
    send_attached(assignment.client_fd, assignment.session)
    with socket.socket(fileno=assignment.client_fd) as client:
        while data := client.recv(65536):
            client.sendall(data)
        if mode == "deaf":
            time.sleep(600)
    control.send("ended", reason="client closed")


if __name__ == "__main__":
    main()
