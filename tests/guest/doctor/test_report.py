"""Case X07: a report may be shown to strangers."""

from __future__ import annotations

import getpass
import json
import os
import socket
import subprocess

import pytest
from vgpu_guest.doctor.redact import Redactor

from tests.conftest import merged
from tests.guest.doctor.tree import DOCTOR, Tree

TOKEN = "hunter2secret"
LONG = "ghp4x8Kq2mZ7rT1vB9nW3sD6"


def test_X07_seeded_secrets_are_not_in_the_report(tree: Tree) -> None:
    home = "/home/alicia/models"
    environment = {
        "VGPU_ENDPOINT": "tcp://10.77.3.9:7070",
        "VGPU_TOKEN": TOKEN,
        "LD_LIBRARY_PATH": f"{home}:/usr/lib/vgpu:/srv/{socket.gethostname()}/lib:/srv/{TOKEN}",
        "CUDA_VISIBLE_DEVICES": "0",
        "LD_PRELOAD": f"/opt/api_key={LONG}/x.so",
        "PYTHONPATH": merged(None)["PYTHONPATH"],
        "PATH": os.environ["PATH"],
        "USER": "bobthebuilder",
    }
    tree.library(f"{home}/libcuda.so.1")
    tree.write("etc/vgpu/guest.conf", f"endpoint = tcp://192.168.55.66:1\ntoken = {TOKEN}\n")
    result = subprocess.run(
        [*DOCTOR, "--report", "--root", str(tree.root), tree.program],
        env=environment, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    text = result.stdout
    document = json.loads(text)
    assert document["verdict"] == "preload-missing", text
    assert document["libs"]["libcuda.so.1"]["resolved"] == "<home>/models/libcuda.so.1"
    for secret in (TOKEN, LONG, "alicia", "bobthebuilder", "10.77.3.9", "192.168.55.66", socket.gethostname()):
        assert secret not in text, secret


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("password=tops3cret ", "password=<secret> "),
        ("tcp://gpu.corp.example:7070", "tcp://<host-1>:7070"),
        ("tcp://[fd00::1:2]:7070 and fd00::1:2", "tcp://<host-1>:7070 and <ip-1>"),
        ("http://joe:pw@10.0.0.1/x", "http://<secret>@<ip-1>/x"),
        ("mail joe@corp.example", "mail <mail>"),
        ("52:54:00:12:34:56", "<mac>"),
        ("/root/.cache", "<home>/.cache"),
        ("/home/joe", "<home>"),
        ("from 10.0.0.7 to 10.0.0.8, from 10.0.0.7", "from <ip-1> to <ip-2>, from <ip-1>"),
    ],
)
def test_what_is_taken_out(text: str, kept: str) -> None:
    assert Redactor().text(text) == kept


@pytest.mark.parametrize(
    "text",
    [
        "libcuda.so.580.159.04 at 0000:01:00.0",
        "NVIDIA H100 PCIe; simulator, driver 580.159.04",
        "table 6bd5fb6c5bf4e74a8987d93912fd9df9",
        "cudaGraphKernelNodeSetAttribute, CUDA_ERROR_SYSTEM_NOT_READY",
        "/usr/lib/x86_64-linux-gnu/libcublas.so.13.1.1.3",
        "compute capability 9.0",
    ],
)
def test_what_a_report_is_for_stays(text: str) -> None:
    assert Redactor().text(text) == text


def test_the_running_user_is_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    if getpass.getuser() == "root":
        monkeypatch.setenv("USER", "carol")
        assert Redactor().text("run by carol, carolina stays") == "run by <user>, carolina stays"
    else:
        assert getpass.getuser() not in Redactor().text(f"run by {getpass.getuser()}")
