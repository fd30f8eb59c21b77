"""Streams, memory, autocast, recurrent networks, optimizers: what programs use besides operators."""

import pytest

from tests.torch.conftest import RunTorch, check_cases, full_python

# Cases for which torch creates a cuDNN handle: the tests' small environment has no cuDNN.
WITH_CUDNN = ("recurrent_networks", "packed_sequences")


@pytest.mark.client
def test_features(run_torch: RunTorch) -> None:
    check_cases(run_torch("features.py", *(f"-{name}" for name in WITH_CUDNN), timeout_s=250), 18)


@pytest.mark.ecosystem
def test_features_in_stream_order(run_torch: RunTorch) -> None:
    arguments = [f"-{name}" for name in WITH_CUDNN]
    check_cases(run_torch("features.py", *arguments, env={"VGPU_TORCH": "async"}, timeout_s=250), 20)


@pytest.mark.ecosystem
@pytest.mark.timeout(900)
def test_features_with_nvidias_libraries(run_torch: RunTorch) -> None:
    check_cases(run_torch("features.py", python=full_python(), timeout_s=250), 20)


@pytest.mark.client
def test_attention_over_packed_sequences(run_torch: RunTorch) -> None:
    check_cases(run_torch("attention.py", timeout_s=250), 4)


@pytest.mark.client
def test_kernels_that_the_cpu_lacks(run_torch: RunTorch) -> None:
    check_cases(run_torch("cuda_kernels.py", timeout_s=250), 3)


@pytest.mark.client
def test_the_list_of_operators(run_torch: RunTorch) -> None:
    """The listing that `vgpu torch` prints; it needs no GPU."""
    names = ["mm", "empty_strided", "miopen_rnn", "uniform_", "_cudnn_rnn"]
    result = run_torch(code=f"import vgpu_torch.__main__ as listing; listing.main({names})")
    rows = [line.split() for line in result.stdout.splitlines()[:-1]]
    answers = {row[0]: " ".join(row[2:]) for row in rows if row[1] == "CUDA"}
    assert answers["mm"] == "executed on the CPU not for uint8, int8, int16, int32, int64"
    assert answers["empty_strided"] == "native"
    assert answers["miopen_rnn"] == "refused"
    assert answers["uniform_"] == "random as on the GPU"
    assert answers["_cudnn_rnn"] == "composed"
    assert "its rules are known" in result.stdout.splitlines()[-1]
