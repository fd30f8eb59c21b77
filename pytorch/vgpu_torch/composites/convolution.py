"""The operators for cuDNN's convolutions and depthwise convolutions, computed by aten::convolution."""

from __future__ import annotations

import torch

from . import composite


def _convolve(x, weight, bias, stride, padding, dilation, groups, transposed=False, output_padding=0):
    dims = x.dim() - 2
    extra = [output_padding] * dims if isinstance(output_padding, int) else output_padding
    return torch.ops.aten.convolution(x, weight, bias, stride, padding, dilation, transposed, extra, groups)


@composite("cudnn_convolution")
def cudnn_convolution(x, weight, padding, stride, dilation, groups, benchmark, deterministic, allow_tf32):
    return _convolve(x, weight, None, stride, padding, dilation, groups)


@composite("cudnn_convolution.out")
def cudnn_convolution_out(x, weight, padding, stride, dilation, groups, benchmark, deterministic, allow_tf32, *, out):
    result = _convolve(x, weight, None, stride, padding, dilation, groups)
    return out.resize_(result.shape).copy_(result)


@composite("cudnn_convolution_transpose")
def cudnn_convolution_transpose(x, weight, padding, output_padding, stride, dilation, groups, benchmark, deterministic,
                                allow_tf32):  # fmt: skip
    return _convolve(x, weight, None, stride, padding, dilation, groups, True, output_padding)


@composite("cudnn_convolution_relu")
def cudnn_convolution_relu(x, weight, bias, stride, padding, dilation, groups):
    return _convolve(x, weight, bias, stride, padding, dilation, groups).relu_()


@composite("cudnn_convolution_add_relu")
def cudnn_convolution_add_relu(x, weight, z, alpha, bias, stride, padding, dilation, groups):
    scale = 1 if alpha is None else alpha
    return _convolve(x, weight, bias, stride, padding, dilation, groups).add_(z, alpha=scale).relu_()


@composite("_conv_depthwise2d")
def conv_depthwise2d(x, weight, kernel_size, bias, stride, padding, dilation):
    return _convolve(x, weight, bias, stride, padding, dilation, x.shape[1])


@composite("conv_depthwise3d")
def conv_depthwise3d(x, weight, kernel_size, bias, stride, padding, dilation):
    return _convolve(x, weight, bias, stride, padding, dilation, x.shape[1])
