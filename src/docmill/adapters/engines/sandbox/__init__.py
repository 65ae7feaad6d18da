"""The sandbox of processes that read untrusted documents. Linux, x86_64 and aarch64; no privilege, no package.

calls    pure: which system calls are allowed on which machine, as a seccomp program
paths    pure: which files are readable, and the Landlock access rights
levels   pure: what was reached, as one of four levels
kernel   the system calls that install all of it, by ctypes
jail     the stand-in for Landlock: a mount namespace that contains nothing else
selftest what a confined process tries, to know that it is refused
home     the parent's side: a folder per process, its input, its results
"""
