#!/bin/sh
# Remake the files here with nvcc 13.0 (they are committed: tests need no CUDA toolkit).
set -e
cd "$(dirname "$0")"
all="$(for v in 75 80 90 120; do echo "-gencode arch=compute_$v,code=compute_$v"; done)"
all="$all -gencode arch=compute_86,code=sm_86"
for mode in none speed size; do nvcc --fatbin --compress-mode=$mode $all kernel.cu -o $mode.fatbin; done
specific="$(for v in 90a 90 100f 100a; do echo "-gencode arch=compute_$v,code=compute_$v"; done)"
nvcc --fatbin $specific kernel.cu -o specific.fatbin
nvcc --fatbin -gencode arch=compute_86,code=sm_86 -gencode arch=compute_120,code=[sm_120,compute_120] kernel.cu \
  -o nothing.fatbin
nvcc --fatbin -gencode arch=compute_90,code=lto_90 kernel.cu -o lto.fatbin
nvcc --cubin -arch=sm_90 kernel.cu -o sm_90.cubin
nvcc -dc -gencode arch=compute_75,code=compute_75 relocatable.cu -o relocatable.obj
