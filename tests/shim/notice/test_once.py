"""The notice is shown once in a session, by any process (case G04), without side effects on the process."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.shim.notice.conftest import LINE, Installed, Machine, compiled

Loader = Callable[[str], list[str | Path]]

BLOCKED = {"VGT_RESULT": "100"}


def shell(loader: Loader, times: int, after: str = "") -> list[str | Path]:
    """A shell command that runs the loader `times` times, one after another, then `after`."""
    command = " ".join(map(str, loader("local")))
    return ["sh", "-c", f"for i in $(seq {times}); do {command} >/dev/null; done; {after}"]


def test_once_in_a_process(installed: Installed, loader: Loader, machine: Machine) -> None:
    assert machine.run([*loader("local"), "5"], installed.folder, **BLOCKED).stderr == LINE


def test_once_in_a_session(installed: Installed, loader: Loader, machine: Machine) -> None:
    environment = machine.environment(installed.folder, **BLOCKED)
    for _ in range(2):  # each run is a new session
        done = subprocess.run(
            [str(part) for part in shell(loader, 4)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            start_new_session=True,
        )
        assert done.stderr == LINE


def wait_for_tick() -> None:
    """Wait until the kernel's clock of start times moves on: the first processes of two PID namespaces that start
    within one tick of 10 ms look the same.
    """
    ticks_per_s = os.sysconf("SC_CLK_TCK")
    tick = int(time.clock_gettime(time.CLOCK_BOOTTIME) * ticks_per_s)
    while int(time.clock_gettime(time.CLOCK_BOOTTIME) * ticks_per_s) == tick:
        time.sleep(0.001)


ENTERED = {
    "own-proc": ["--mount-proc"],
    "outer-proc": [],
    "no-proc": ["--mount"],
}


@pytest.mark.parametrize("where", ENTERED)
def test_once_in_a_session_that_began_outside_the_pid_namespace(
    installed: Installed, loader: Loader, machine: Machine, where: str
) -> None:
    """In programs that `unshare --pid` or a CI's sandbox starts, getsid(2) returns 0. Without /proc the members of a
    session cannot be found, and each process shows the notice once.
    """
    enter = ["unshare", *([] if os.geteuid() == 0 else ["--map-root-user"]), "--pid", "--fork", *ENTERED[where]]
    hide = ["sh", "-c", 'mount -t tmpfs none /proc; exec "$@"', "sh"] if where == "no-proc" else []
    if (tried := subprocess.run([*enter, "true"], capture_output=True, text=True, timeout=60)).returncode:
        pytest.skip(f"no PID namespace to be had: {tried.stderr.strip()}")
    for _ in range(2):  # each run enters a namespace anew: a new session
        if where == "outer-proc":
            enter = ["setsid", "--wait", *enter]
        wait_for_tick()
        done = machine.run([*enter, *hide, *shell(loader, 3)], installed.folder, **BLOCKED)
        assert (done.returncode, done.stderr) == (0, LINE * (3 if where == "no-proc" else 1))


def test_g04_eight_workers_at_once_show_one(installed: Installed, loader: Loader, machine: Machine) -> None:
    """Like the workers of a DataLoader, eight processes see cuInit fail at the same moment."""
    command = " ".join(map(str, loader("proc_v2")))
    done = machine.run(
        ["sh", "-c", f"for i in 1 2 3 4 5 6 7 8; do {command} >/dev/null & done; wait"], installed.folder, **BLOCKED
    )
    assert done.stderr == LINE


def test_a_renewed_marker_is_shown_again(installed: Installed, loader: Loader, machine: Machine) -> None:
    touched = f"touch -d @1700000000 {machine.marker}; {' '.join(map(str, loader('local')))} > /dev/null"
    assert machine.run(shell(loader, 2, touched), installed.folder, **BLOCKED).stderr == LINE * 2


def test_without_a_place_for_the_record_once_in_each_process(
    installed: Installed, loader: Loader, machine: Machine, tmp_path: Path
) -> None:
    """With a FIFO, a link or a directory in place of the record, the notice does not block or follow the link."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    record = machine.home / "vgpu-notice"
    fallback = Path(f"/tmp/vgpu-notice-{os.geteuid()}")
    for make in (lambda: os.mkfifo(record), lambda: record.symlink_to(victim), record.mkdir):
        make()
        kept = fallback.read_bytes() if fallback.is_file() else b""
        try:
            done = machine.run(shell(loader, 2), installed.folder, **BLOCKED)
        finally:
            if fallback.is_file():
                fallback.write_bytes(kept)
        assert done.returncode == 0
        assert done.stderr == LINE  # the record is then in /tmp
        if record.is_dir():
            record.rmdir()
        else:
            record.unlink()
    assert victim.read_text() == "mine"


def test_the_record_stays_small(installed: Installed, loader: Loader, machine: Machine) -> None:
    """For example for a service that starts a session each minute for months."""
    record = machine.home / "vgpu-notice"
    old = "".join(f"boot {number} 0 1700000000.000000000\n" for number in range(1000))
    record.write_text(old)
    assert machine.run(shell(loader, 3), installed.folder, **BLOCKED).stderr == LINE
    lines = record.read_text().splitlines()
    assert len(record.read_text()) <= 4096
    assert len(lines) > 10
    assert all(len(line.split()) == 4 for line in lines)


PROGRAM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int (*init)(unsigned);
static pthread_barrier_t barrier;

static void *call(void *unused) {
  pthread_barrier_wait(&barrier);
  return init(0) == 100 ? unused : NULL;
}

int main(int argc, char **argv) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  init = (int (*)(unsigned))dlsym(library, "cuInit");
  if (argc > 1 && !strcmp(argv[1], "threads")) {
    pthread_t threads[16];
    void *good;
    pthread_barrier_init(&barrier, NULL, 16);
    for (int i = 0; i < 16; i++)
      pthread_create(&threads[i], NULL, call, &barrier);
    for (int i = 0; i < 16; i++)
      if (pthread_join(threads[i], &good) || !good)
        return 2;
    return 0;
  }
  if (argc > 1 && !strcmp(argv[1], "set")) /* as os.environ[...] = "" does in Python */
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
  if (argc > 1 && !strcmp(argv[1], "close")) {
    for (int i = 0; i < 20; i++) {
      if (init(0) != 100 || dlclose(library) || !(library = dlopen("libcuda.so.1", RTLD_NOW)))
        return 2;
      init = (int (*)(unsigned))dlsym(library, "cuInit");
    }
    return 0;
  }
  if (argc > 1 && !strcmp(argv[1], "after") && init(0) != 100)
    return 2;
  for (int i = 0; i < 3; i++)
    if (!fork())
      _exit(init(0) == 100 ? 0 : 2);
  int status, bad = init(0) != 100;
  while (wait(&status) > 0)
    bad |= status;
  return bad;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("process")
    (folder / "process.c").write_text(PROGRAM)
    return compiled(folder / "process", folder / "process.c", "-pthread")


@pytest.mark.parametrize("what", ["threads", "before", "after", "close", "set"])
def test_once_with_threads_forks_and_dlclose(installed: Installed, machine: Machine, program: Path, what: str) -> None:
    """`close` unloads and reloads the library, which loses its state; the session's record remains."""
    done = machine.run([program, what], installed.folder, None if what == "set" else "", **BLOCKED)
    assert (done.returncode, done.stderr) == (0, LINE)


def test_no_descriptor_stays_open(installed: Installed, loader: Loader, machine: Machine, tmp_path: Path) -> None:
    program = tmp_path / "fds.c"
    program.write_text(
        """
        #include <dlfcn.h>
        #include <dirent.h>
        #include <stdio.h>
        static int descriptors(void) {
          int count = 0;
          DIR *folder = opendir("/proc/self/fd");
          while (readdir(folder))
            count++;
          closedir(folder);
          return count;
        }
        int main(void) {
          int (*init)(unsigned) = (int (*)(unsigned))dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuInit");
          int before = descriptors();
          init(0);
          printf("%d\\n", descriptors() - before);
          return 0;
        }
        """
    )
    done = machine.run([compiled(tmp_path / "fds", program)], installed.folder, **BLOCKED)
    assert (done.stdout, done.stderr) == ("0\n", LINE)
