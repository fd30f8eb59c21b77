"""Calls of NVIDIA's libraries through ctypes, a module for each library: functions that return the device's result and
numpy's. `record.py` beside this folder runs them."""
