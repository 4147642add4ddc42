"""Tuning: which sizes of a kernel's schedule are fastest on this machine, and what was found, kept for later compilations.

`records` keeps what was found, `trial` builds, checks and times one kernel, `search` runs the trials in a process of its own.
"""
