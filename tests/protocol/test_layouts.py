"""The types declared afresh in vgw_cuda.h have the layouts of NVIDIA's header, wherever that header is available."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

STRUCTS = {
    "CUlaunchConfig": ["gridDimX", "sharedMemBytes", "hStream", "attrs", "numAttrs"],
    "CUlaunchAttribute": ["id", "value"],
    "CUDA_MEMCPY2D": [
        "srcY",
        "srcMemoryType",
        "srcHost",
        "srcPitch",
        "dstDevice",
        "dstPitch",
        "WidthInBytes",
        "Height",
    ],
    "CUDA_MEMCPY3D": ["srcLOD", "srcHost", "srcPitch", "srcHeight", "dstXInBytes", "dstHost", "dstHeight", "Depth"],
    "CUDA_KERNEL_NODE_PARAMS_v1": ["gridDimX", "sharedMemBytes", "kernelParams", "extra"],
    "CUDA_KERNEL_NODE_PARAMS_v2": ["gridDimX", "sharedMemBytes", "kernelParams", "extra", "kern", "ctx"],
    "CUDA_MEMSET_NODE_PARAMS": ["pitch", "value", "elementSize", "width", "height"],
    "CUgraphExecUpdateResultInfo": ["result", "errorNode", "errorFromNode"],
    "CUmemPoolProps": ["handleTypes", "location", "maxSize", "usage", "reserved"],
    "CUmemAllocationProp": ["requestedHandleTypes", "location", "allocFlags"],
    "CUmemAccessDesc": ["location", "flags"],
    "CUDA_ARRAY_SPARSE_PROPERTIES": ["miptailFirstLevel", "miptailSize", "flags"],
    "CUDA_ARRAY_MEMORY_REQUIREMENTS": ["alignment", "reserved"],
    "CUarrayMapInfo": ["resource", "subresource", "memOperationType", "memHandle", "offset", "deviceBitMask", "flags"],
    "CUDA_EXTERNAL_MEMORY_HANDLE_DESC": ["handle", "size", "flags"],
    "CUDA_EXTERNAL_MEMORY_BUFFER_DESC": ["size", "flags"],
    "CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC": ["arrayDesc", "numLevels"],
    "CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC": ["handle", "flags"],
    "CUmemDecompressParams": ["dstNumBytes", "dstActBytes", "src", "dst", "algo"],
    "CUDA_LAUNCH_PARAMS": ["gridDimX", "blockDimZ", "sharedMemBytes", "hStream", "kernelParams"],
    "CUdevprop": ["maxThreadsDim", "maxGridSize", "regsPerBlock", "textureAlign"],
}
CONSTANTS = [
    "CUDA_ERROR_ILLEGAL_ADDRESS",
    "CUDA_ERROR_NOT_SUPPORTED",
    "CUDA_ERROR_SYSTEM_NOT_READY",
    "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
    "CUDA_ERROR_STREAM_CAPTURE_MERGE",
    "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
    "CUDA_ERROR_STREAM_CAPTURE_UNJOINED",
    "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
    "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
    "CUDA_ERROR_CAPTURED_EVENT",
    "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE",
    "CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED",
    "CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED",
    "CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED",
    "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES",
    "CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE",
    "CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT",
    "CU_MEMORYTYPE_UNIFIED",
]


def layout(include: str, header: str, tmp_path: Path) -> str:
    lines = [f'  printf("{s} %zu\\n", sizeof({s}));' for s in STRUCTS]
    lines += [f'  printf("{s}.{m} %zu\\n", offsetof({s}, {m}));' for s, members in STRUCTS.items() for m in members]
    lines += [f'  printf("{c} %d\\n", (int){c});' for c in CONSTANTS]
    source = tmp_path / "layout.c"
    source.write_text(
        f"#include <stddef.h>\n#include <stdio.h>\n#include <{header}>\nint main(void) {{\n"
        + "\n".join(lines)
        + "\n}\n"
    )
    program = tmp_path / f"layout-{header}"
    subprocess.run(["gcc", "-I", include, "-o", str(program), str(source)], check=True)
    return subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout


def test_types_match_the_real_header(tmp_path: Path) -> None:
    places = [Path("/usr/local/cuda/include"), *sorted((ROOT / "build").glob("**/nvidia/cu13/include"))]
    real = next((p for p in places if (p / "cuda.h").exists()), None)
    if real is None:
        pytest.skip("no cuda.h on this machine: it comes with the toolchain of tests/programs")
    assert layout(str(ROOT / "protocol/c"), "vgw_cuda.h", tmp_path) == layout(str(real), "cuda.h", tmp_path)
