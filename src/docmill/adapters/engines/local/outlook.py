"""An Outlook message (MSG) as a mail, for the mail reader."""

from __future__ import annotations

from contextlib import suppress
from email.message import EmailMessage
from email.utils import format_datetime
from typing import Any

from docmill.core.errors import DocumentError

from ..markdown import clean
from .job import Job

PID_RTF_COMPRESSED = 0x1009
MAX_ATTACHMENTS = 1000


def as_mail(job: Job) -> EmailMessage:
    """Sender, receivers, date, subject, the best body, attachments."""
    try:
        from oxmsg import Message

        return convert(job, Message.load(job.source.read_bytes()))
    except (MemoryError, DocumentError):
        raise
    except Exception as error:
        raise DocumentError("document_broken", why="not readable as an Outlook message") from error


def convert(job: Job, found: Any) -> EmailMessage:
    mail = EmailMessage()
    receivers = attempt(lambda: [receiver(one) for one in found.recipients]) or []
    sent = attempt(lambda: found.sent_date)
    for name, value in (
        ("From", attempt(lambda: found.sender)),
        ("To", ", ".join(filter(None, receivers))),
        ("Date", format_datetime(sent) if sent else ""),
        ("Subject", attempt(lambda: found.subject)),
    ):
        if text := line(value):
            with suppress(ValueError):
                # A structured header would refuse addresses of Exchange.
                mail.add_header(f"X-Shown-{name}" if name in ("From", "To") else name, text)
    html, text = attempt(lambda: found.html_body), attempt(lambda: found.body)
    if html and html.strip():
        mail.set_content(encodable(html), subtype="html", cte="base64")
    elif text and text.strip():
        mail.set_content(encodable(text), cte="base64")
    else:
        mail.set_content(encodable(rtf_body(job, found)), cte="base64")
    for one in list(attempt(lambda: found.attachments) or ())[:MAX_ATTACHMENTS]:
        data = attempt(lambda one=one: one.file_bytes)
        name = line(attempt(lambda one=one: one.file_name))
        if data:
            mail.add_attachment(data, "application", "octet-stream", filename=name or "unnamed")
    return mail


def receiver(one: Any) -> str:
    name, address = line(one.name), line(one.email_address)
    return f"{name} <{address}>" if name and address and name != address else name or address


def line(value: object) -> str:
    return " ".join(clean(str(value or "")).split())


def encodable(text: str) -> str:
    return clean(text.replace("\0", ""))


def rtf_body(job: Job, found: Any) -> str:
    """Some messages have their text as packed RTF only."""
    packed = attempt(lambda: found.properties.binary_prop_value(PID_RTF_COMPRESSED))
    if not packed:
        return ""
    from compressed_rtf import decompress

    from .rtf import plain_text

    unpacked = attempt(lambda: decompress(packed))
    if not unpacked:
        job.warn("text_lost: the body of the message cannot be unpacked")
        return ""
    return plain_text(unpacked)


def attempt(read: Any) -> Any:
    """A field of the message, or None: many files lack some."""
    try:
        return read()
    except (MemoryError, KeyboardInterrupt, SystemExit):
        raise
    except Exception:
        return None
