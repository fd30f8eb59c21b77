"""What runs in a guest beside the libraries: what the loader will find, installing, the doctor.

Python 3.10 or newer and click are all it may need: a guest gets it from a package, without pip and without `vgpud`.
"""
