"""TLS for clients on other machines: a process holds the certificate and relays the clients' bytes to vgpud."""
