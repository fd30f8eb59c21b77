"""The administrator's interface: HTTP on a unix socket (docs/operations.md), and the metrics."""
