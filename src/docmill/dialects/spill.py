"""Reads a JSON object piece by piece, and puts the huge strings in it into files while they arrive.

A final report may carry hundreds of megabytes in its texts and its archive. The reader keeps the rest of the object as
Python values, within limits, and neither memory nor time depends on where the pieces are cut. It is strict: what two
parsers could understand differently (duplicate keys, numbers out of range) is refused, NUL and lone surrogates in keys
too. From all other strings NUL and lone surrogates are removed: OCR makes them, and the document is worth more.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from hashlib import sha256
from math import isfinite
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final, Literal, NoReturn

import msgspec
import pybase64

from docmill.core.errors import BadRequest

PIECE: Final = 256 * 1024
MAX_NUMBER: Final = 100
"""Characters of a number."""


@dataclass(frozen=True, slots=True)
class Spill:
    """A string that goes to a file: as UTF-8, or decoded from base64."""

    path: tuple[str, ...]
    """The keys that lead to it; `*` stands for every element of an array, whose strings share one file."""
    kind: Literal["text", "base64"]

    @property
    def name(self) -> str:
        return ".".join(self.path)

    @property
    def is_shared(self) -> bool:
        return "*" in self.path


@dataclass(frozen=True, slots=True)
class Spilled:
    """Stands in the value where a spilled string stood."""

    path: Path
    size: int
    sha256: str
    start: int = 0
    """Where it begins in the file."""
    removed: int = 0
    """How many NUL characters and lone surrogates were removed."""


@dataclass(frozen=True, slots=True)
class Limits:
    kept: int = 8 * 1024**2
    """Bytes of all strings that are not spilled, keys among them."""
    values: int = 100_000
    depth: int = 64


class _Want(Enum):
    """What may come next."""

    OBJECT = auto()
    VALUE = auto()
    ITEM_OR_END = auto()
    KEY = auto()
    KEY_OR_END = auto()
    COLON = auto()
    COMMA_OR_END = auto()
    NOTHING = auto()


_NAMES: Final = {
    _Want.OBJECT: "an object",
    _Want.VALUE: "a value",
    _Want.ITEM_OR_END: "a value or ']'",
    _Want.KEY: "a key",
    _Want.KEY_OR_END: "a key or '}'",
    _Want.COLON: "':'",
    _Want.COMMA_OR_END: "',' or the end of the object or array",
    _Want.NOTHING: "nothing more",
}
_CONTAINERS: Final = (dict, list)
_PLAIN: Final = re.compile(rb'"([^"\\\x00-\x1f]*+)"')
"""A string that is all here and says itself: most are, and take the short way."""
_SPACE: Final = re.compile(rb"[ \t\n\r]*+")
_INSIDE: Final = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_NUMBERLIKE: Final = re.compile(rb"[-+.0-9eE]*+")
_NUMBER: Final = re.compile(rb"(-?(?:0|[1-9][0-9]*))(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_HIGH_SURROGATE: Final = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}")
_UNSTORABLE: Final = re.compile(
    rb"""(?P<kept>\\\\ | \\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})
       | \\u0000 | \\u[dD][89a-fA-F][0-9a-fA-F]{2} | \x00 | \xed[\xa0-\xbf][\x80-\xbf]""",
    re.VERBOSE,
)
"""NUL and surrogates inside a JSON string, escaped or raw; `kept` are escaped backslashes and whole surrogate pairs."""
_WORDS: Final[dict[int, tuple[bytes, bool | None]]] = {
    ord("t"): (b"true", True),
    ord("f"): (b"false", False),
    ord("n"): (b"null", None),
}
_QUOTE, _OPEN, _CLOSE, _OPEN_LIST, _CLOSE_LIST, _COLON, _COMMA = b'"{}[]:,'
_NUMBER_STARTS: Final = frozenset(b"-0123456789")
_STRING: Final = msgspec.json.Decoder(str)


class Reader:
    """Feed it the body in pieces of any size; `close` gives the value, with `Spilled` where a string went to a file.

    What is wrong with the body raises BadRequest, from `feed` as early as it shows, or from `close`. Then, and when the
    disk fails, the files are gone. After `close` they belong to the caller.
    """

    def __init__(self, folder: Path, spills: Iterable[Spill] = (), limits: Limits | None = None) -> None:
        self._folder = folder
        self._spills = {spill.path: spill for spill in spills}
        self._limits = limits or Limits()
        self._want = _Want.OBJECT
        self._stack: list[dict[str, Any] | list[Any]] = []
        self._path: list[str] = []
        """The key in each open container; of an array, `*`."""
        self._root: dict[str, Any] | None = None
        self._string: _Sink | None = None
        self._rest = b""
        self._read = 0
        self._kept = 0
        self._values = 0
        self._files: list[Path] = []
        self._shared: dict[Spill, _File] = {}
        self._over = False

    def feed(self, chunk: bytes) -> None:
        if self._over:
            raise ValueError("the reader is closed")
        try:
            for start in range(0, len(chunk), PIECE):
                self._take(chunk[start : start + PIECE])
        except BaseException:
            self.discard()
            raise

    def close(self) -> dict[str, Any]:
        """The value, once the whole body was fed."""
        if self._over:
            raise ValueError("the reader is closed")
        if self._root is None or self._want is not _Want.NOTHING:
            self.discard()
            _refuse("the JSON ends too early" if self._read else "the body is empty")
        try:
            for file in self._shared.values():
                file.close()
        except BaseException:
            self.discard()
            raise
        self._over = True
        return self._root

    def discard(self) -> None:
        """Forget everything, and delete the files."""
        self._over = True
        if self._string is not None:
            self._string.abandon()
            self._string = None
        for file in self._shared.values():
            file.abandon()
        for path in self._files:
            path.unlink(missing_ok=True)
        self._files.clear()

    def _take(self, chunk: bytes) -> None:
        data = self._rest + chunk if self._rest else chunk
        self._read += len(chunk)
        self._rest = b""
        at = 0
        while at < len(data):
            if self._string is not None:
                at = self._string.take(data, at)
                if not self._string.ended:
                    break
                value, self._string = self._string.value(), None
                self._end_string(value)
                continue
            at = _SPACE.match(data, at).end()  # type: ignore[union-attr]  # matches the empty string too
            if at == len(data):
                return
            after = self._token(data, at)
            if after == at:
                break
            at = after
        self._rest = data[at:]

    def _token(self, data: bytes, at: int) -> int:
        """Read one token; where it ends, or *at* if the rest of it has yet to come."""
        byte, want = data[at], self._want
        if byte == _QUOTE and want in (_Want.KEY, _Want.KEY_OR_END):
            return self._begin_string(data, at)
        if want in (_Want.VALUE, _Want.ITEM_OR_END) and byte not in b"}],:":
            return self._value(data, at)
        if byte == _COLON and want is _Want.COLON:
            self._want = _Want.VALUE
        elif byte == _COMMA and want is _Want.COMMA_OR_END:
            self._want = _Want.KEY if isinstance(self._stack[-1], dict) else _Want.VALUE
        elif byte == _OPEN and want is _Want.OBJECT:
            self._root = {}
            self._open(self._root, _Want.KEY_OR_END)
        elif (byte == _CLOSE and self._may_close(dict, _Want.KEY_OR_END)) or (
            byte == _CLOSE_LIST and self._may_close(list, _Want.ITEM_OR_END)
        ):
            self._close_container()
        else:
            self._unexpected(at, len(data))
        return at + 1

    def _value(self, data: bytes, at: int) -> int:
        byte = data[at]
        if byte == _QUOTE:
            spill = self._spills.get(tuple(self._path))
            return self._begin_string(data, at) if spill is None else self._begin_spill(spill, at)
        if byte == _OPEN:
            inner: dict[str, Any] = {}
            self._add(inner)
            self._open(inner, _Want.KEY_OR_END)
            return at + 1
        if byte == _OPEN_LIST:
            items: list[Any] = []
            self._add(items)
            self._open(items, _Want.ITEM_OR_END)
            return at + 1
        if byte in _NUMBER_STARTS:
            return self._number(data, at)
        if byte in _WORDS:
            return self._word(data, at)
        return self._unexpected(at, len(data))

    def _number(self, data: bytes, at: int) -> int:
        end = _NUMBERLIKE.match(data, at).end()  # type: ignore[union-attr]  # matches the empty string too
        if end - at > MAX_NUMBER:
            _refuse(f"a number has more than {MAX_NUMBER} characters")
        if end == len(data):
            return at
        self._add(_number(data[at:end]))
        return end

    def _word(self, data: bytes, at: int) -> int:
        word, value = _WORDS[data[at]]
        given = data[at : at + len(word)]
        if given == word:
            self._add(value)
            return at + len(word)
        if not word.startswith(given):
            self._unexpected(at, len(data))
        return at

    def _begin_string(self, data: bytes, at: int) -> int:
        is_key = self._want in (_Want.KEY, _Want.KEY_OR_END)
        plain = _PLAIN.match(data, at)
        if plain is None:
            self._string = _Kept(self._charge, is_key=is_key)
            return at + 1
        self._charge(len(plain[1]))
        self._end_string(_text(plain[1], "a key") if is_key else _storable(plain[1], "a string")[0])
        return plain.end()

    def _begin_spill(self, spill: Spill, at: int) -> int:
        file = self._shared.get(spill)
        if file is None:
            file = _File(self._folder)
            self._files.append(file.path)
            if spill.is_shared:
                self._shared[spill] = file
        self._string = _Text(spill, file) if spill.kind == "text" else _Base64(spill, file)
        return at + 1

    def _end_string(self, value: Any) -> None:
        if self._want is not _Want.KEY and self._want is not _Want.KEY_OR_END:
            self._add(value)
            return
        if value in self._stack[-1]:
            _refuse(f"the key {_shown(value)} occurs twice")
        self._path.append(value)
        self._want = _Want.COLON

    def _add(self, value: object) -> None:
        self._values += 1
        if self._values > self._limits.values:
            _refuse(f"there are more than {self._limits.values} values")
        into = self._stack[-1]
        if isinstance(into, dict):
            into[self._path[-1]] = value
            if not isinstance(value, _CONTAINERS):
                self._path.pop()
        else:
            into.append(value)
        self._want = _Want.COMMA_OR_END

    def _open(self, container: dict[str, Any] | list[Any], want: _Want) -> None:
        if len(self._stack) == self._limits.depth:
            _refuse(f"it is nested deeper than {self._limits.depth} levels")
        self._stack.append(container)
        if isinstance(container, list):
            self._path.append("*")
        self._want = want

    def _may_close(self, kind: type, when_empty: _Want) -> bool:
        return self._want in (when_empty, _Want.COMMA_OR_END) and isinstance(self._stack[-1], kind)

    def _close_container(self) -> None:
        if isinstance(self._stack.pop(), list):
            self._path.pop()
        if self._stack and isinstance(self._stack[-1], dict):
            self._path.pop()
        self._want = _Want.COMMA_OR_END if self._stack else _Want.NOTHING

    def _unexpected(self, at: int, size: int) -> NoReturn:
        if self._want is _Want.OBJECT:
            _refuse("the body is not a JSON object")
        _refuse(f"the JSON is broken at byte {self._read - size + at}: {_NAMES[self._want]} was expected")

    def _charge(self, size: int) -> None:
        self._kept += size
        if self._kept > self._limits.kept:
            besides = f" besides {' and '.join(spill.name for spill in self._spills.values())}" if self._spills else ""
            _refuse(f"it holds more than {self._limits.kept} bytes of text{besides}")


def read(body: bytes, folder: Path, spills: Iterable[Spill] = (), limits: Limits | None = None) -> dict[str, Any]:
    """The value of a body that is all here."""
    reader = Reader(folder, spills, limits)
    reader.feed(body)
    return reader.close()


def fingerprint(value: dict[str, Any]) -> str:
    """The same for the same report, however it is spelled and wherever its files lie: SHA-256 in hex."""

    def plain(part: Any) -> Any:
        if isinstance(part, Spilled):
            return {"\0spilled": part.sha256}  # no key of a value holds a NUL
        if isinstance(part, dict):
            return {key: plain(inner) for key, inner in part.items()}
        return [plain(inner) for inner in part] if isinstance(part, list) else part

    return sha256(msgspec.json.encode(plain(value), order="deterministic")).hexdigest()


def spilled(value: object) -> Iterator[Spilled]:
    """Every spilled string in a value, so that its file can be deleted."""
    if isinstance(value, Spilled):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from spilled(inner)


class _File:
    """Holds one string, or many one after the other."""

    def __init__(self, folder: Path) -> None:
        self._file = NamedTemporaryFile("wb", buffering=PIECE, prefix="spill-", dir=folder, delete=False)  # noqa: SIM115
        self._hash = sha256()
        self._start = 0
        self._end = 0
        self._removed = 0
        self.path = Path(self._file.name)

    def write(self, piece: bytes, removed: int = 0) -> None:
        self._hash.update(piece)
        self._file.write(piece)
        self._end += len(piece)
        self._removed += removed

    def end_string(self) -> Spilled:
        spilled = Spilled(self.path, self._end - self._start, self._hash.hexdigest(), self._start, self._removed)
        self._hash, self._start, self._removed = sha256(), self._end, 0
        return spilled

    def close(self) -> None:
        self._file.close()

    def abandon(self) -> None:
        # Closing writes what is buffered, which fails once more on a full disk; the file is closed all the same.
        with suppress(OSError):
            self._file.close()


class _Sink(ABC):
    """Where the inside of the string under way goes."""

    ended = False

    @abstractmethod
    def take(self, data: bytes, at: int) -> int:
        """Take the string's part of *data*; where it ends. Behind the closing quote, `ended` is set."""

    @abstractmethod
    def value(self) -> Any: ...

    def abandon(self) -> None:
        return


class _Kept(_Sink):
    def __init__(self, charge: Callable[[int], None], *, is_key: bool) -> None:
        self._charge = charge
        self._is_key = is_key
        self._raw = bytearray()

    def take(self, data: bytes, at: int) -> int:
        end = _INSIDE.match(data, at).end()  # type: ignore[union-attr]  # matches the empty string too
        self._charge(end - at)
        self._raw += data[at:end]
        self.ended = data[end : end + 1] == b'"'
        return end + self.ended

    def value(self) -> str:
        raw = bytes(self._raw)
        return _text(raw, "a key") if self._is_key else _storable(raw, "a string")[0]


class _Text(_Sink):
    """A text on its way to a file: decoded in pieces that cut neither escape sequences nor characters."""

    def __init__(self, spill: Spill, file: _File) -> None:
        self._name = spill.name
        self._file = file
        self._is_shared = spill.is_shared

    def take(self, data: bytes, at: int) -> int:
        raw = data[at:] if at else data
        masked = raw
        if b"\\" in raw:
            # After this a quote is the string's end, and a backslash the start of another escape sequence.
            masked = raw.replace(b"\\\\", b"__").replace(b'\\"', b"__")
        end = masked.find(b'"')
        self.ended = end >= 0
        if not self.ended:
            end = _last_border(masked)
        self._write(raw[:end])
        return at + end + self.ended

    def _write(self, raw: bytes) -> None:
        text, removed = _storable(raw, self._name)
        self._file.write(text.encode(), removed)

    def value(self) -> Spilled:
        spilled = self._file.end_string()
        if not self._is_shared:
            self._file.close()
        return spilled

    def abandon(self) -> None:
        self._file.abandon()


class _Base64(_Sink):
    def __init__(self, spill: Spill, file: _File) -> None:
        self._name = spill.name
        self._file = file
        self._rest = b""
        self._padded = False

    def take(self, data: bytes, at: int) -> int:
        end = data.find(b'"', at)
        self.ended = end >= 0
        if not self.ended:
            # A backslash at the border waits for what it escapes.
            end = len(data) - (data[-1:] == b"\\")
        given = data[at:end]
        if b"\\" in given:
            given = given.replace(b"\\/", b"/")
        self._decode(self._rest + given if self._rest else given)
        return end + self.ended

    def _decode(self, given: bytes) -> None:
        whole = len(given) - len(given) % 4
        self._rest = given[whole:]
        if self._padded and given:
            _refuse(f"{self._name} has data after its padding")
        if whole:
            try:
                self._file.write(pybase64.b64decode(given[:whole] if self._rest else given, validate=True))
            except ValueError:
                _refuse(f"{self._name} is not base64")
            self._padded = given[whole - 1] == ord("=")
        if self._padded and self._rest:
            _refuse(f"{self._name} has data after its padding")

    def value(self) -> Spilled:
        if self._rest:
            _refuse(f"{self._name} is not base64: its length is not a multiple of 4")
        spilled = self._file.end_string()
        self._file.close()
        return spilled

    def abandon(self) -> None:
        self._file.abandon()


def _last_border(masked: bytes) -> int:
    """Where the last complete character of an unfinished string ends."""
    end = len(masked)
    escape = masked.rfind(b"\\", max(0, end - 5))
    if escape >= 0 and end - escape < (6 if masked[escape + 1 : escape + 2] == b"u" else 2):
        end = escape
    elif end and masked[end - 1] >= 0x80:
        return _last_utf8_border(masked)
    if end >= 6 and _HIGH_SURROGATE.fullmatch(masked, end - 6, end):
        end -= 6
    return end


def _last_utf8_border(masked: bytes) -> int:
    for back in range(1, min(4, len(masked) + 1)):
        byte = masked[-back]
        if byte >= 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(masked) - back if back < needed else len(masked)
        if byte < 0x80:
            break
    return len(masked)


def _decode(raw: bytes) -> str:
    return _STRING.decode(b'"%b"' % raw)


def _storable(raw: bytes, name: str) -> tuple[str, int]:
    """The text of a JSON string without NUL and lone surrogates, and how many there were."""
    try:
        text = _decode(raw)
    except (msgspec.DecodeError, UnicodeError):
        text = "\0"  # a lone surrogate, or something that is broken for good
    if "\0" not in text:
        return text, 0
    raw, removed = _without_unstorable(raw)
    return _text(raw, name), removed


def _without_unstorable(raw: bytes) -> tuple[bytes, int]:
    """The inside of a JSON string without NUL and lone surrogates, and how many there were."""
    removed = 0

    def replace(match: re.Match[bytes]) -> bytes:
        nonlocal removed
        if match["kept"] is None:
            removed += 1
        return match["kept"] or b""

    return _UNSTORABLE.sub(replace, raw), removed


def _text(raw: bytes, name: str) -> str:
    try:
        text = _decode(raw)
    except (msgspec.DecodeError, UnicodeError):
        _refuse(f"{name} is not a JSON string: broken UTF-8, a control character, or an escape that means nothing")
    if "\0" in text:
        _refuse(f"{name} has a NUL character")
    return text


def _number(token: bytes) -> int | float:
    match = _NUMBER.fullmatch(token)
    if match is None:
        _refuse(f"{token.decode()} is not a number")
    if match[2] is None and match[3] is None:
        whole = int(token)
        if not -(2**63) <= whole < 2**63:
            _refuse(f"{token.decode()} does not fit in 64 bits")
        return whole
    number = float(token)
    if not isfinite(number):
        _refuse(f"{token.decode()} is too large for a number")
    return number


def _shown(key: str) -> str:
    return f"'{key}'" if len(key) <= 100 else f"'{key[:100]}…'"


def _refuse(why: str) -> NoReturn:
    raise BadRequest("callback_payload_invalid", why=why)
