"""`vgpu doctor`: why does this program not see the GPU, and what mends it.

`place` is where a program stands (root, namespaces, user), `subject` which program with which environment, `loader`
what the dynamic linker answers there, `greeting` what vgpud says from there, `probe` what a real cuInit says there. The
`check_...` modules make findings of that, `diagnosis` one verdict; all verdicts are in `verdict`.
"""
