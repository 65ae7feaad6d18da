"""docmill turns documents into clean, validated, addressable content, durably."""

__version__ = "0.1.0"
