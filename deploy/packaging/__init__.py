"""Packages for machines that build nothing: the guest's .deb and .tar.gz, and the operators' bundle.

`python -m deploy.packaging guest` and `bundle` make them from what `make build` has built; `make packages` and
`make bundle` do both.
"""
