"""Mails: the head as a list, the body as Markdown, what was attached by name."""

from __future__ import annotations

import email
import email.policy
import re
from email.message import EmailMessage, MIMEPart
from email.utils import parsedate_to_datetime

from docmill.core.errors import DocumentError
from docmill.core.links import LABEL, TARGET

from ..markdown import clean, image_link, tidy
from . import text, web
from .job import Job

FIELDS = ("From", "To", "Cc", "Date", "Subject")
CID_IMAGE = re.compile(rf"!\[({LABEL})\]\(<?cid:({TARGET})>?\)")
MOST_PARTS = 1000


def read(job: Job) -> None:
    try:
        message = email.message_from_bytes(job.source.read_bytes(), policy=email.policy.default)
        parts = [part for _, part in zip(range(MOST_PARTS), message.walk(), strict=False)]
    except (ValueError, LookupError, IndexError, AttributeError) as error:
        raise DocumentError("document_broken", why="not readable as a mail") from error
    subject = field(message, "Subject")
    job.title = subject or None
    body, shown = body_of(job, message)
    sections = [f"# {subject}" if subject else "", head_of(message), body, attachments_of(parts, shown)]
    job.add_page(0, "\n\n".join(filter(None, sections)))
    job.progress(1, 1)


def field(message: EmailMessage, name: str) -> str:
    """Python's header parser trips over some of what the world sends."""
    try:
        value = message.get(name, "")
    except (ValueError, LookupError, IndexError, AttributeError, TypeError):
        return ""
    return " ".join(clean(str(value)).split())


def head_of(message: EmailMessage) -> str:
    lines = [(name, sent(message) if name == "Date" else field(message, name)) for name in FIELDS]
    return "\n".join(
        f"- **{name}:** {value.replace('<', chr(92) + '<')}" for name, value in lines if value and name != "Subject"
    )


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


def attachments_of(parts: list[EmailMessage], shown: set[int]) -> str:
    names = []
    for part in parts:
        name = part.get_filename()
        if id(part) in shown or part.is_multipart() or not (name or part.is_attachment()):
            continue
        label = " ".join(clean(name or "unnamed").split())
        kind = "" if "." in label else f"{part.get_content_type()}, "
        names.append(f"- {label} ({kind}{len(payload_of(part))} bytes)")
    return "## Attachments\n\n" + "\n".join(names) if names else ""
