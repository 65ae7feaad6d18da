"""How well parsers are confined, for health checks, metrics and the doctor."""

from __future__ import annotations

from docmill.ports import Ports, SandboxedEngine

RANKS = {"unknown": -1, "weak": 0, "partial": 1, "jailed": 2, "full": 3}
"""Levels as numbers that an alert can compare."""


def sandbox_level(ports: Ports) -> str:
    """full, jailed, partial, weak, or unknown as long as no parser has started."""
    levels = [engine.sandbox_level for engine in ports.engines.values() if isinstance(engine, SandboxedEngine)]
    return min(levels, key=RANKS.__getitem__, default="unknown")
