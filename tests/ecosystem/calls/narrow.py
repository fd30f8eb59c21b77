"""Types that numpy lacks, with cuBLAS's and cuDNN's codes for them; only exactly representable values are used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Kind:
    """A type: its cudaDataType, how numbers are stored in it and read from it."""

    code: int
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]


def _plain(code: int, dtype: str) -> Kind:
    return Kind(code, lambda values: np.asarray(values).astype(dtype), lambda stored: stored)


def _encode_bf16(values: Any) -> Any:
    return (np.asarray(values).astype("f4").view("u4") >> 16).astype("u2")


def _decode_bf16(stored: Any) -> Any:
    return (stored.astype("u4") << 16).view("f4")


def _float8(code: int, exponent_bits: int, mantissa_bits: int, bias: int) -> Kind:
    bits = np.arange(256)
    exponent, mantissa = bits >> mantissa_bits & (1 << exponent_bits) - 1, bits & (1 << mantissa_bits) - 1
    scale = np.where(exponent > 0, exponent, 1) - bias - mantissa_bits
    values = np.where(bits & 128, -1.0, 1.0) * (mantissa + np.where(exponent > 0, 1 << mantissa_bits, 0)) * 2.0**scale

    def encode(numbers: Any) -> Any:
        flat = np.asarray(numbers, "f8").ravel()
        return np.abs(values[None, :127] - np.abs(flat)[:, None]).argmin(1).astype("u1").reshape(np.shape(numbers)) | (
            (np.asarray(numbers) < 0).astype("u1") << 7
        )

    return Kind(code, encode, lambda stored: values[stored])


F32, F64, F16, I8, I32 = _plain(0, "f4"), _plain(1, "f8"), _plain(2, "f2"), _plain(3, "i1"), _plain(10, "i4")
BF16 = Kind(14, _encode_bf16, _decode_bf16)
E4M3, E5M2 = _float8(28, 4, 3, 7), _float8(29, 5, 2, 15)
