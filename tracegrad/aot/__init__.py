"""Compiled functions as C source that needs neither Python nor tracegrad."""
