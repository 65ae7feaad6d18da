"""The document contracts: what a normalised document is, and a check that says everything that is wrong with one.

>>> from docmill.contracts import check
>>> check("blob", b'{"type": "ftp"}').errors[0].code
'union_tag_invalid'
"""

from .asset import Asset, AssetRef
from .base import Violation
from .blob import BlobLocator, ExternalBlob, FileBlob, InlineBlob
from .checking import KINDS, Checked, check, check_value
from .codes import CODES
from .document import DocumentMeta, DocumentRef, NormalizedDocument
from .mode import media_guard, strict_mode
from .schema import json_schema

__all__ = [
    "CODES",
    "KINDS",
    "Asset",
    "AssetRef",
    "BlobLocator",
    "Checked",
    "DocumentMeta",
    "DocumentRef",
    "ExternalBlob",
    "FileBlob",
    "InlineBlob",
    "NormalizedDocument",
    "Violation",
    "check",
    "check_value",
    "json_schema",
    "media_guard",
    "strict_mode",
]
