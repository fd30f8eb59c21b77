"""Calls of NVIDIA's libraries, by ctypes: each module has one library's, as functions that answer what was computed
and what numpy computes. `record.py` beside this folder runs them."""
