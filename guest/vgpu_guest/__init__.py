"""The guest's tools: predicting what the loader finds, installation, and the doctor.

This package may use only Python 3.10 and click: a guest installs it as a package, without pip and without `vgpud`.
"""
