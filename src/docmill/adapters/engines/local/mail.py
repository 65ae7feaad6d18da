"""Mails, Outlook messages, mailboxes and web archives: the head as a list, the body as Markdown; what was attached is
read as documents behind it."""

from __future__ import annotations

import email
import email.policy
import re
from collections.abc import Iterator
from email.message import EmailMessage, Message, MIMEPart
from email.utils import parsedate_to_datetime
from typing import Any

from docmill.core.errors import DocumentError
from docmill.core.links import LABEL, TARGET

from .. import sniff
from ..markdown import clean, escape, image_link, tidy
from . import outlook, text, web
from .job import Job
from .members import Member, Row, label_of, manifest, read_members

FIELDS = ("From", "To", "Cc", "Date", "Subject")
CID_IMAGE = re.compile(rf"!\[({LABEL})\]\(<?cid:({TARGET})>?\)")
ANY_IMAGE = re.compile(rf"!\[({LABEL})\]\(<?({TARGET})>?\)")
FROM_LINE = re.compile(rb"(?:\A|\r?\n\r?\n|(?<=\n))(From [^\r\n]{1,300}\r?\n(?=>?[A-Za-z][A-Za-z0-9-]{0,100}:))")
QUOTED_FROM = re.compile(rb"(?m)^>(>*From )")
MAX_PARTS = 1000


def read(job: Job) -> None:
    if job.media_type == sniff.MBOX:
        read_mailbox(job)
        return
    message = outlook.as_mail(job) if job.media_type == sniff.MSG else parse(job.source.read_bytes())
    if job.media_type == sniff.MHTML:
        read_web_archive(job, message)
        return
    subject = field(message, "Subject")
    job.title = subject or None
    body, shown = body_of(job, message)
    rows = attachments_of(job, message, shown)
    sections = [f"# {escape(subject)}" if subject else "", head_of(message), body, attachment_list(rows)]
    job.add_page(0, "\n\n".join(filter(None, sections)))
    job.progress(1, 1)


def parse(data: bytes) -> EmailMessage:
    try:
        message = email.message_from_bytes(data, policy=email.policy.default)
        for _ in zip(range(MAX_PARTS), message.walk(), strict=False):
            pass
    except (ValueError, LookupError, IndexError, AttributeError) as error:
        raise DocumentError("document_broken", why="not readable as a mail") from error
    return message


def read_mailbox(job: Job) -> None:
    """Every message is a document of its own."""
    if job.depth >= job.limits.member_depth:
        raise DocumentError("document_bomb", why=f"mailboxes more than {job.limits.member_depth} deep")
    rows = read_members(job, (Member(*named) for named in messages(job.source.read_bytes())), after=1)
    job.add_page(0, manifest(rows))


def messages(data: bytes) -> Iterator[tuple[str, bytes]]:
    """The messages of a mailbox; lines of their text that begin with "From " are quoted with ">"."""
    starts = [found.start(1) for found in FROM_LINE.finditer(data)] or [0]
    for number, (start, end) in enumerate(zip(starts, [*starts[1:], len(data)], strict=True), 1):
        body = data[start:end]
        message = QUOTED_FROM.sub(rb"\1", body.partition(b"\n")[2] if body.startswith(b"From ") else body)
        yield f"message {number}.eml", message


def read_web_archive(job: Job, message: EmailMessage) -> None:
    """A saved page: its HTML, and pictures that came with it."""
    parts = [part for _, part in zip(range(MAX_PARTS), message.walk(), strict=False)]
    root = next((part for part in parts if part.get_content_type() == "text/html"), None)
    if root is None:
        root = next((part for part in parts if part.get_content_maintype() == "text"), None)
    if root is None:
        raise DocumentError("document_broken", why="it holds no page")
    html = web.decode(payload_of(root)) if payload_of(root) else content_of(root)
    job.title = web.title_of(html) or field(message, "Subject") or None
    markdown = web.convert(job, web.main_content(html), page=0)
    pictures = {str(part.get("Content-Location", "")).strip(): part for part in parts}
    pictures |= {f"cid:{str(part.get('Content-ID', '')).strip(' <>')}": part for part in parts}

    def keep(found: re.Match[str]) -> str:
        part = pictures.get(found[2])
        name = job.add_image(payload_of(part), 0) if part is not None else None
        return image_link(name, found[1]) if name else found[0]

    job.add_page(0, tidy(ANY_IMAGE.sub(keep, markdown)))
    job.progress(1, 1)


def field(message: EmailMessage, name: str) -> str:
    """Python's header parser trips over some of what the world sends."""
    try:
        value = message.get(name, "")
    except (ValueError, LookupError, IndexError, AttributeError, TypeError):
        return ""
    return " ".join(clean(str(value)).split())


def head_of(message: EmailMessage) -> str:
    lines = [(name, sent(message) if name == "Date" else shown_field(message, name)) for name in FIELDS]
    return "\n".join(
        f"- **{name}:** {value.replace('<', chr(92) + '<')}" for name, value in lines if value and name != "Subject"
    )


def shown_field(message: EmailMessage, name: str) -> str:
    """Addresses of Outlook need not be addresses of mail."""
    return field(message, name) or field(message, f"X-Shown-{name}")


def sent(message: EmailMessage) -> str:
    """When, as everybody sorts it; what is no date stays as it was written."""
    written = field(message, "Date")
    try:
        when = parsedate_to_datetime(written)
    except (ValueError, TypeError, IndexError, OverflowError):
        return written
    return when.isoformat(" ", "minutes")


def body_of(job: Job, message: EmailMessage) -> tuple[str, set[int]]:
    """The best form of the text, and which parts it used up."""
    part = best_part(message, ("html", "plain"))
    if part is None:
        return "", set()
    content = content_of(part)
    if part.get_content_type() != "text/html":
        return content.strip(), {id(part)}
    used = {id(part)}
    markdown = web.convert(job, content, page=0)
    images = {(inner.get("Content-ID") or "").strip(" <>"): inner for inner in message.walk()}

    def keep(found: re.Match[str]) -> str:
        inner = images.get(found[2])
        name = job.add_image(payload_of(inner), 0) if inner is not None else None
        if name is None:
            return found[1]
        used.add(id(inner))
        return image_link(name, found[1])

    plain = best_part(message, ("plain",))
    if plain is not None:
        used.add(id(plain))
    return tidy(CID_IMAGE.sub(keep, markdown)), used


def best_part(message: EmailMessage, wanted: tuple[str, ...]) -> MIMEPart | None:
    """Python's own search trips over parts that say they hold parts and hold none."""
    try:
        return message.get_body(preferencelist=wanted)
    except (AttributeError, TypeError, ValueError, LookupError):
        texts = {part.get_content_subtype(): part for part in message.walk() if part.get_content_maintype() == "text"}
        return next((texts[kind] for kind in wanted if kind in texts), None)


def content_of(part: MIMEPart) -> str:
    try:
        return str(part.get_content())
    except (LookupError, UnicodeError, ValueError, KeyError):
        return text.decode(payload_of(part))


def payload_of(part: MIMEPart) -> bytes:
    payload = part.get_payload(decode=True)
    return payload if isinstance(payload, bytes) else b""


def attachments_of(job: Job, message: EmailMessage, shown: set[int]) -> list[Row]:
    """Every attachment is a document behind the mail; what is too deep is listed only."""
    found: list[Member | Row] = []
    for part in own_parts(message):
        name = part.get_filename()
        is_mail = part.get_content_type() == "message/rfc822"
        if id(part) in shown or not (name or part.is_attachment() or is_mail):
            continue
        label = label_of(name or ("message.eml" if is_mail else f"unnamed {part.get_content_type()}"))
        data = mail_bytes(part) if is_mail else payload_of(part)
        if job.depth + 1 >= job.limits.member_depth or not data:
            found.append(Row(label, part.get_content_type(), len(data), "not read" if data else "empty"))
        else:
            found.append(Member(label, data))
    return read_members(job, found, after=1) if found else []


def own_parts(message: Message) -> Iterator[Any]:
    """The parts of a mail, but not those of mails attached to it."""
    waiting = [message]
    for _ in range(MAX_PARTS):
        if not waiting:
            return
        part = waiting.pop(0)
        inner = part.get_payload() if part.is_multipart() else None
        if part is not message and part.get_content_type() == "message/rfc822":
            yield part
        elif isinstance(inner, list):
            waiting = [one for one in inner if isinstance(one, Message)] + waiting
        else:
            yield part


def mail_bytes(part: Any) -> bytes:
    inner = part.get_payload()
    try:
        return bytes(inner[0]) if isinstance(inner, list) and inner else payload_of(part)
    except (ValueError, LookupError, AttributeError, TypeError):
        return b""


def attachment_list(rows: list[Row]) -> str:
    lines = [f"- {escape(row.name)} ({row.type}, {row.size} bytes): {row.result}" for row in rows]
    return "## Attachments\n\n" + "\n".join(lines) if lines else ""
