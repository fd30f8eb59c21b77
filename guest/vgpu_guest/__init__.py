"""The guest's tools: predicting what the loader finds, installation, and the doctor.

Python 3.10 or newer and click are all it may need: a guest gets it from a package, without pip and without `vgpud`.
"""
