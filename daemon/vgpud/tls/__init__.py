"""TLS for clients on other machines: a process that has the certificate, and carries their bytes to vgpud."""
