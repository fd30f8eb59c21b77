"""`with_ctransformers.py MODEL cuda|basic`: generate eight tokens after a prompt, on the GPU or on the CPU."""

import sys

from ctransformers import AutoModelForCausalLM

path, library = sys.argv[1:]
layers = 99 if library == "cuda" else 0
model = AutoModelForCausalLM.from_pretrained(path, model_type="llama", gpu_layers=layers, lib=library)
print("said", model("hello world", max_new_tokens=8, temperature=0, top_k=1).encode())
