"""Debian's Chromium, quiet: it looks for nothing beyond this machine."""

from pathlib import Path

from support.servers.debian import ensure

QUIET_FLAGS = (
    "--headless",
    "--no-sandbox",  # its sandbox refuses root
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def ensure_chromium() -> Path:
    return ensure("chromium")
