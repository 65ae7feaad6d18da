"""The quick judgement: accepts values that are already normal and consistent, and has no opinion on others.

It must never accept what the contracts themselves would refuse or change; a property test holds both together.
A typed decoder reads the text. What is left to look at is gathered from all parts of a value and looked at once:
a call costs more than the few characters of a name.
"""

import re
import secrets
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from operator import attrgetter
from typing import Any

from msgspec import UNSET, MsgspecError
from msgspec.json import Decoder
from msgspec.structs import fields

from . import building
from .base import Contract
from .building import Lifted
from .fields import is_language, is_media_type, is_name
from .keys import keys_written
from .mode import Mode
from .payload import Broken, decoded_digest, decoded_size
from .shapes import (
    AssetRefShape,
    AssetShape,
    BlobShape,
    DocumentMetaShape,
    DocumentRefShape,
    DocumentShape,
    FileShape,
    InlineShape,
    Shape,
)
from .text import clean

_LARGE = 1 << 20
_WORTH_LIFTING = 1 << 16
_GRAPHIC = bytes(range(0x21, 0x7F))
_HEX = b"0123456789abcdef"


class _Judgement:
    """Of one text: collects what is judged together, and says of the rest whether it holds."""

    __slots__ = ("digests", "lifted", "lines", "media_types", "mode", "names")

    def __init__(self, mode: Mode, lifted: Lifted) -> None:
        self.mode = mode
        self.lifted = lifted
        self.names: list[str] = []
        self.lines: list[str] = []
        self.digests: list[str] = []
        self.media_types: set[str] = set()

    def holds(self) -> bool:
        """Whether everything collected is normal."""
        return (
            _made_of(_HEX, self.digests)
            and (_made_of(_GRAPHIC, self.lines) or all(clean(line) == line for line in self.lines))
            and all(map(is_media_type, self.media_types))
            and all(map(is_name, self.names))
        )

    def document_ref(self, shape: DocumentRefShape) -> bool:
        self.lines.append(shape.tenant_id)
        self.names.append(shape.workflow_id)
        if shape.version:  # UNSET is false
            self.names.append(shape.version)
        return True

    def document_meta(self, shape: DocumentMetaShape) -> bool:
        title, language, external = shape.title, shape.language, shape.external_ref
        if shape.crawl_timestamp and not _in_range(shape.crawl_timestamp):
            return False
        self.lines.append(shape.tenant_id)
        self.names.append(shape.workflow_id)
        self.names += shape.tags or ()
        if shape.origin_uri:
            self.lines.append(shape.origin_uri)
        if external:
            self.lines += external
            self.lines += external.values()
        # A title mostly has blanks, and would make all other lines be looked at one by one.
        return not (title and clean(title) != title) and not (language and not is_language(language))

    def blob(self, shape: BlobShape) -> bool:
        if shape.sha256:
            self.digests.append(shape.sha256)
        if not isinstance(shape, InlineShape):
            self.lines.append(shape.uri)
            return True
        self.media_types.add(shape.media_type)
        encoded = self.lifted.get(shape.base64, shape.base64)
        try:
            if self.mode.strict:
                return decoded_digest(encoded) == (shape.size, shape.sha256)
            return decoded_size(encoded) == shape.size
        except Broken:
            return False

    def asset_ref(self, shape: AssetRefShape) -> bool:
        self.lines.append(shape.tenant_id)
        self.names.append(shape.workflow_id)
        return True

    def asset(self, shape: AssetShape) -> bool:
        return self.asset_ref(shape.ref) and self.assets((shape,))

    def assets(self, shapes: Iterable[AssetShape]) -> bool:
        """All but their refs. It is the most frequent thing to judge: plain lookups are its whole cost."""
        strict, guard, lines, digests = self.mode.strict, self.mode.media_guard, self.lines, self.digests
        for shape in shapes:
            blob, media_type, bbox = shape.blob, shape.media_type, shape.bbox
            if isinstance(blob, FileShape):
                lines.append(blob.uri)
                digests.append(blob.sha256)
            elif not self.blob(blob):
                return False
            if isinstance(blob, InlineShape):
                if blob.media_type != media_type:
                    return False
            elif guard and not media_type.startswith(guard):
                return False
            if shape.checksum != blob.sha256:
                if strict:
                    return False
                digests.append(shape.checksum)
            if bbox and (bbox[2] <= bbox[0] or bbox[3] <= bbox[1]):
                return False
            if shape.caption_method == "vlm_caption" and (
                not shape.caption_model or (confidence := shape.caption_confidence) is None or confidence is UNSET
            ):
                return False
            if origin := shape.origin_uri:
                lines.append(origin)
            if model := shape.caption_model:
                lines.append(model)
            self.media_types.add(media_type)
            if shape.created_at.tzinfo is not UTC and not _in_range(shape.created_at):
                return False
        return True

    def document(self, shape: DocumentShape) -> bool:
        ref, meta, assets = shape.ref, shape.meta, shape.assets or ()
        tenant, workflow, document, collection = (
            ref.tenant_id,
            ref.workflow_id,
            ref.document_id.int,
            ref.collection_id or None,
        )
        self.digests.append(shape.checksum)
        if meta.tenant_id != tenant or meta.workflow_id != workflow:
            return False
        if (self.mode.strict and shape.blob.sha256 != shape.checksum) or not _in_range(shape.created_at):
            return False
        for part in assets:
            own = part.ref
            # A UUID compares itself in Python; its number is quick.
            if own.tenant_id != tenant or own.workflow_id != workflow or own.document_id.int != document:
                return False
            if own.collection_id and own.collection_id != collection:
                return False
        return self.document_ref(ref) and self.document_meta(meta) and self.blob(shape.blob) and self.assets(assets)


def _made_of(characters: bytes, texts: list[str]) -> bool:
    return not "".join(texts).encode().translate(None, characters)


def _in_range(moment: datetime) -> bool:
    """Whether UTC has a year for it."""
    return 1 < moment.year < 9999


Judge = Callable[[_Judgement, Any], bool]
Build = Callable[[Any, Lifted], Contract]
_QUICK: dict[str, tuple[Decoder[Any], Judge, Build]] = {
    "document-ref": (Decoder(DocumentRefShape), _Judgement.document_ref, building.document_ref),
    "document-meta": (Decoder(DocumentMetaShape), _Judgement.document_meta, building.document_meta),
    "blob": (Decoder(BlobShape), _Judgement.blob, building.blob),
    "asset-ref": (Decoder(AssetRefShape), _Judgement.asset_ref, building.asset_ref),
    "asset": (Decoder(AssetShape), _Judgement.asset, building.asset),
    "document": (Decoder(DocumentShape), _Judgement.document, building.document),
}


def accepted(kind: str, data: bytes, mode: Mode) -> Callable[[], Contract] | None:
    """What makes the value in the JSON text *data*, or None if it takes the explaining judgement to say."""
    decoder, judge, build = _QUICK[kind]
    text, lifted = _lift(data) if len(data) > _LARGE else (data, {})
    try:
        shape = decoder.decode(text)
    except (MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    judgement = _Judgement(mode, lifted)
    if not judge(judgement, shape) or not judgement.holds():
        return None
    if mode.strict and keys_written(text) != _keys_kept(shape):
        return None
    return partial(build, shape, lifted)


_before_payload = re.compile(rb'"base64"[ \t\r\n]*:[ \t\r\n]*"')


def _lift(data: bytes) -> tuple[bytes, Lifted]:
    """*data* with a short mark in place of each base64 payload, and the payloads by their marks.

    A JSON parser looks at every character and copies the string; nothing in a payload is worth that. A mark is
    random, so that no text in *data* can pass for one. A payload with an escape is cut off at the wrong place, but it
    is no base64 then, and nothing that holds it is accepted.
    """
    parts: list[bytes] = []
    lifted: dict[str, memoryview] = {}
    view, done, start = memoryview(data), 0, 0
    while (start := data.find(b'"base64"', start)) >= 0:
        match = _before_payload.match(data, start)
        start = match.end() if match else start + 1
        if not match:
            continue
        end = data.find(b'"', start)
        if end < 0:
            break
        if end - start < _WORTH_LIFTING:
            start = end
            continue
        mark = secrets.token_hex(16)
        lifted[mark] = view[start:end]
        parts += (data[done:start], mark.encode())
        start = done = end
    return b"".join((*parts, data[done:])), lifted


def _keys_kept(shape: Any) -> int:
    """How many keys *shape* and the shapes in it were given."""
    kind = type(shape)
    if kind is AssetShape:
        blob = 4 if type(shape.blob) is FileShape else _given(shape.blob)
        return _given(shape) + blob + 5 - (shape.ref.collection_id is UNSET)
    if kind is DocumentShape:
        parts = (shape.ref, shape.meta, shape.blob, *(shape.assets or ()))
        return _given(shape) + sum(map(_keys_kept, parts))
    return _given(shape) + (len(shape.external_ref or ()) if kind is DocumentMetaShape else 0)


def _given(shape: Shape) -> int:
    most, optional = _FIELDS[type(shape)]
    return most - sum([value is UNSET for value in optional(shape)])


def _counted(shape: type[Shape]) -> tuple[int, Callable[[Shape], Iterable[object]]]:
    """How many keys *shape* has at most, and what gets the values of those that may be absent."""
    optional = [field.name for field in fields(shape) if not field.required]
    most = len(shape.__struct_fields__) + (1 if shape.__struct_config__.tag else 0)
    if len(optional) < 2:  # a getter of a single name would give no tuple
        return most, lambda given: [getattr(given, name) for name in optional]
    return most, attrgetter(*optional)


_FIELDS = {shape: _counted(shape) for shape in Shape.__subclasses__()}
