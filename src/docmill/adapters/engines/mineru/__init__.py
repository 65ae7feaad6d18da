"""MinerU: a self-hosted server of today, one of the 3.x line, or the cloud. Which it is, is found out by asking.

engine    MinerUEngine: probe, send, wait, fetch, read; a cancelled wait is told to the provider
contract  what the three have in common
today     /v1/uploads, /v1/parse/jobs, /v1/files
three     /tasks, /health
cloud     /file-urls/batch, /extract-results/batch
results   their ZIP files, as blocks of pages
"""
