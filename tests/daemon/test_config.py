"""The configuration file: defaults, the sample, and errors that name file, line and key."""

from __future__ import annotations

from pathlib import Path

import pytest
from vgpud.config import Config, ConfigError, load_config, parse_config
from vgpud.config_tables import ImagesConfig, LimitsConfig, LogConfig, ShareConfig, TlsConfig, UserConfig

SAMPLE = Path(__file__).parents[2] / "deploy/vgpud.toml"


def error_of(text: str) -> str:
    with pytest.raises(ConfigError) as error:
        parse_config(text, source="f.toml")
    return str(error.value)


def test_everything_has_a_default():
    assert load_config(None) == parse_config("", source="f.toml")


def test_the_sample_loads_and_shows_the_defaults():
    sample = load_config(SAMPLE)
    assert sample.limits == LimitsConfig()
    assert sample.images == ImagesConfig()
    assert sample.log == LogConfig()
    assert sample.gpus == Config().gpus
    assert sample.libcuda == Config().libcuda
    assert sample.socket.mode_bits == 0o666
    text = SAMPLE.read_text()
    tables = (Config, LimitsConfig, ImagesConfig, LogConfig, ShareConfig, TlsConfig, UserConfig)
    for name in [n for c in tables for n in c.model_fields]:
        assert name in text, f"{name} is not in the sample"


def test_the_samples_commented_keys_are_keys():
    lines = SAMPLE.read_text().splitlines()
    enabled = [
        line[2:] if line.startswith(("# cache_dir =", "# state_dir =", "# worker_command =", "# group =")) else line
        for line in lines
    ]
    tables = ("# [[", "# name =", "# value =", "# cid =", "# vsock =", "# hybrid =", "# port =", "# share =", "# uid =")
    tables += ("# [tls]", "# certificate =", "# key =", "# client_ca =", "# listen =", "# weight =")
    tables += ("# memory_mib =", "# sessions =", "# default_share =")
    enabled = [line[2:] if line.startswith(tables) else line for line in enabled]
    config = parse_config("\n".join(enabled), source=str(SAMPLE))
    assert [token.name for token in config.tokens] == ["lab"]
    assert config.share(config.tokens[0].share) == config.shares[0]
    assert config.socket.group == "vgpu"
    assert config.worker_command is not None
    assert [vm.name for vm in config.vm] == ["build1", "build2"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpu = 'h100'", "f.toml:1: gpu: unknown key"),
        ("\n\n[limits]\nmax_session = 3", "f.toml:4: limits.max_session: unknown key"),
        ("[limits]\nspare_workers = -1", "f.toml:2: limits.spare_workers: "),
        ("# c\nlimits.spare_workers = 'x'", "f.toml:2: limits.spare_workers: "),
        ("[limits]\nhello_timeout_s = 0", "f.toml:2: limits.hello_timeout_s: "),
        ("listen = []", "f.toml:1: listen: "),
        ("[[vm]]\nname = 'a b'\ncid = 3", "f.toml:2: vm.0.name: "),
        ("[[vm]]\nname = 'a'\ncid = 2", "f.toml:3: vm.0.cid: "),
        (
            "[[vm]]\nname = 'a'\ncid = 3\nvsock = 'x.sock'",
            "f.toml:1: vm.0: 'unix:x.sock.control': the path is not absolute",
        ),
        ("[[vm]]\nname = 'a'\ncid = 3\nvsock = '/a'\nhybrid = '/b'", "f.toml:1: vm.0: a VM has one vsock device"),
        ("[[vm]]\nname = 'a'\ncid = 3\n[[vm]]\nname = 'b'\ncid = 3", "f.toml: vm: two VMs have the cid 3"),
        ("listen = [\n  'unix:/a',\n  'ftp://x',\n]", "f.toml:1: listen: 'ftp://x': it is none of unix:/PATH"),
        ("gpus = 'h100'\nlisten = ['tcp://0.0.0.0:7070']", "f.toml:2: listen: tcp://0.0.0.0:7070 is reachable"),
        ("[[tokens]]\nname = 'a'\nvalue = 'short'", "f.toml:3: tokens.0.value: a token has 16 to 255"),
        (
            "[[tokens]]\nname = 'a'\nvalue = '0123456789abcdef'\n[[tokens]]\nname = 'b'\n",
            "f.toml:4: tokens.1.value: ",
        ),
        (f"[[tokens]]\nname = 'a'\nvalue = '{'x' * 256}'", "f.toml:3: tokens.0.value: a token has 16 to 255"),
        ("[[tokens]]\nname = 'a'\nvalue = '0123456789abcdefé'", "f.toml:3: tokens.0.value: a token has 16 to 255"),
        ("default_share = 'small'", "f.toml:1: default_share: there is no [[shares]] called 'small'"),
        ("[[shares]]\nname = 'a'\n[[shares]]\nname = 'a'", "f.toml:4: shares.1.name: two are called 'a'"),
        ("[[shares]]\nname = 'a'\ngpus = [1]", "f.toml:3: shares.0.gpus: there is no device 1: there is 1, from 0 on"),
        ("gpus = 't4:2'\n[[shares]]\nname = 'a'\ngpus = [1, 1]", "f.toml:4: shares.0.gpus: device 1 is named twice"),
        ("[[shares]]\nname = 'a'\ngpus = []", "f.toml:3: shares.0.gpus: "),
        ("[[shares]]\nname = 'a'\ngpus = [true]", "f.toml:3: shares.0.gpus.0"),
        ("gpus = 't5'\n[[shares]]\nname = 'a'\ngpus = [0]", "f.toml:1: gpus: 't5': no profile 't5'"),
        ("[recording]\ntenants = ['job-7']", "f.toml:2: recording.tenants: 'job-7' names no tenant: "),
        ("[recording]\ntenants = ['*']", "f.toml:1: recording.dir: give one"),
        ("backend = 'metal'", "f.toml:1: backend: "),
        ("[mps]", 'f.toml:1: mps: it is for backend = "cuda"'),
        (
            "[[shares]]\nname = 'a'\nmps_active_thread_percentage = 9",
            "f.toml:3: shares.0.mps_active_thread_percentage: it needs [mps]",
        ),
        ("[socket]\nmode = 'rw'", "f.toml:2: socket.mode: "),
        ("text = '''\n[limits]\n'''\n[log]\nlevel = 'loud'", "f.toml:5: log.level: "),
        ("[limits\n", "f.toml:1: "),
    ],
)
def test_errors_name_file_line_and_key(text, expected):
    message = error_of(text)
    assert any(line.startswith(expected) for line in message.splitlines()), message


def test_all_errors_are_told_at_once():
    assert len(error_of("a = 1\nb = 2\n[limits]\nmax_sessions = 0").splitlines()) == 3


def test_a_syntax_error_has_its_line():
    assert error_of("gpus = 'h100'\nlisten = [").startswith("f.toml:2: ")
    assert error_of("gpus = 'h100'\nlisten = 1 2\n\n").startswith("f.toml:2: ")


def test_an_error_never_shows_a_token():
    assert "hunter2" not in error_of("[[tokens]]\nname = 'a'\nvalue = 'hunter2'")
    config = parse_config("[[tokens]]\nname = 'a'\nvalue = '0123456789abcdef'", source="f")
    assert "0123456789abcdef" not in repr(config)


@pytest.mark.parametrize("endpoint", ["tcp://127.0.0.1:1", "tcp://localhost:1", "tcp://[::1]:1"])
def test_loopback_needs_no_token(endpoint):
    assert parse_config(f"listen = ['{endpoint}']", source="f").listen == [endpoint]


@pytest.mark.parametrize("endpoint", ["tcp://0.0.0.0:1", "tcp://[::]:1", "tcp://host:1", "tcp://10.0.0.1:1"])
def test_what_others_can_reach_does(endpoint):
    assert "configure [[tokens]] first" in error_of(f"listen = ['{endpoint}']")


def test_the_command_line_is_checked_like_the_file():
    with pytest.raises(ConfigError, match=r"command line: listen: 'x': it is none of unix:/PATH"):
        Config().with_changes({"listen": ["x"]})
    with pytest.raises(ConfigError, match="tokens"):
        Config().with_changes({"listen": ["tcp://0.0.0.0:1"]})
    tokens = parse_config("[[tokens]]\nname = 'a'\nvalue = '0123456789abcdef'", source="f")
    assert tokens.with_changes({"listen": ["tcp://0.0.0.0:1"]}).tokens == tokens.tokens


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(ConfigError, match=r"absent\.toml: No such file"):
        load_config(tmp_path / "absent.toml")
    (tmp_path / "latin.toml").write_bytes(b"gpus = '\xe9'")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_config(tmp_path / "latin.toml")
    (tmp_path / "big.toml").write_bytes(b"#" * (1024 * 1024 + 1))
    with pytest.raises(ConfigError, match="larger than"):
        load_config(tmp_path / "big.toml")


def test_a_denied_group_must_exist():
    error = error_of("[[shares]]\nname = 'a'\ndeny = ['ipc',\n  'ipcs']\n")
    assert error.startswith("f.toml:3: shares.0.deny: there is no group 'ipcs' of functions; there are: ipc, export")


def test_the_audit_log_has_an_absolute_path():
    assert error_of("[log]\naudit = 'audit.jsonl'\n").startswith("f.toml:2: log.audit: ")
