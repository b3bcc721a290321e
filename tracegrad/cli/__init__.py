"""The command line: ``python -m tracegrad {demo, doctor, dump, opt, build, cache}``."""
