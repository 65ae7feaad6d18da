"""MinerU: a self-hosted server of today, one of the 3.x line, or the cloud. Which it is, is found out by asking.

engine   MinerUEngine: what it reads, and who may answer
today    /v1/uploads, /v1/parse/jobs, /v1/files
three    /tasks, /health
cloud    /file-urls/batch, /extract-results/batch
results  their ZIP files, as blocks of pages
"""
