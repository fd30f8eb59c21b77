"""`vgpu doctor`: why does this program not see the GPU, and which command repairs it?

A place (`place`) is where a program runs: its root, namespaces and user. A `subject` is a program in a place with an
environment. `loader` asks the dynamic linker, `greeting` asks vgpud and `probe` calls cuInit, all in that place. The
`check_...` modules turn the answers into findings, `diagnosis` selects one verdict; all verdicts are in `verdict`.
"""
