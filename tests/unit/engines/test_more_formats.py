"""Every format beyond PDF, OOXML and the web: a good file, a truncated one and a hostile one."""

from __future__ import annotations

import gzip
import io
import json
import mailbox
import struct
import tarfile
import zipfile
from email.message import EmailMessage
from pathlib import Path

import pytest
from PIL import Image

from docmill.adapters.engines import sniff
from docmill.adapters.engines.local import Limits
from docmill.adapters.engines.local.rtf import plain_text
from docmill.core.errors import DocumentError, StageFailed
from support import documents
from unit.engines.conftest import Bench

ODF = (
    '<office:document-content xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0" '
    'xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0" '
    'xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0" '
    'xmlns:draw="urn:oasis:names:tc:opendocument:xmlns:drawing:1.0" office:version="1.2">'
    "<office:body>{}</office:body></office:document-content>"
)
CONTAINER = (
    '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container" version="1.0"><rootfiles>'
    '<rootfile full-path="book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>'
)
OPF = (
    '<package xmlns="http://www.idpf.org/2007/opf" version="3.0" unique-identifier="i"><metadata '
    'xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:identifier id="i">x</dc:identifier><dc:title>Harbours</dc:title>'
    "<dc:language>en</dc:language></metadata><manifest>"
    '<item id="c" href="c.xhtml" media-type="application/xhtml+xml"/></manifest><spine><itemref idref="c"/></spine>'
    "</package>"
)
XHTML = '<html xmlns="http://www.w3.org/1999/xhtml"><head><title>c</title></head><body>{}</body></html>'
RTF = (
    rb"{\rtf1\ansi\ansicpg1252{\fonttbl{\f0 Arial;}}\pard The harbour of K\'f6ln has \b three\b0  basins."
    rb"\par Ships.\par}"
)
FB2 = (
    '<?xml version="1.0"?><FictionBook xmlns="http://www.gribuser.ru/xml/fictionbook/2.0"><body><section>'
    "<title><p>The harbour</p></title><p>It has <strong>three</strong> basins.</p></section></body></FictionBook>"
)
DOCBOOK = (
    '<?xml version="1.0"?><article xmlns="http://docbook.org/ns/docbook"><title>The harbour</title><section>'
    "<title>Basins</title><para>There are three.</para><itemizedlist><listitem><para>north</para></listitem>"
    "</itemizedlist><programlisting>dig()</programlisting></section></article>"
)
JATS = (
    '<!DOCTYPE article PUBLIC "-//NLM//DTD JATS (Z39.96) Journal Publishing DTD v1.0//EN" "x.dtd"><article><front>'
    "<article-meta><title-group><article-title>Tides</article-title></title-group><contrib-group><contrib><name>"
    "<surname>Petersen</surname><given-names>Ada</given-names></name></contrib></contrib-group></article-meta></front>"
    "<body><sec><title>Method</title><p>We measured the water.</p></sec></body></article>"
)
OPML = (
    '<?xml version="1.0"?><opml version="2.0"><head><title>Plan</title></head><body><outline text="Harbour">'
    '<outline text="Basins"/></outline></body></opml>'
)
SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="4cm" height="2cm"><title>Map</title>'
    '<rect width="50" height="20"/><text x="5" y="15">Harbour basin</text></svg>'
)
RST = (
    "Harbour\n=======\n\nIt has ``three`` basins.\n\n.. versionadded:: 2\n   Kept text.\n\n::\n\n    dig()\n\n"
    "* one\n* two\n"
)
ORG = (
    "#+TITLE: Plan\n* Harbour\nIt has *three* basins.\n#+begin_src c\ndig();\n#+end_src\n"
    "| a | b |\n|---+---|\n| 1 | 2 |\n"
)
ASCIIDOC = "= Harbour\n\n== Basins\n\nThere are three.\n\n* north\n\n----\ndig()\n----\n\n|===\n|a |b\n|1 |2\n|===\n"
LATEX = (
    "\\documentclass{article}\n\\newcommand{\\port}{Kiel}\n\\begin{document}\n\\section{Harbour}\nIt is \\port, "
    "\\textbf{deep} % secret\n with $x^2$.\n\\begin{itemize}\\item north\\end{itemize}\n\\end{document}\n"
)
VTT = "WEBVTT\n\n00:01.000 --> 00:02.000\n<v Ada>The harbour is open.\n"
SRT = "1\n00:00:01,000 --> 00:00:02,000\nThe harbour is open.\n\n2\n00:00:03,000 --> 00:00:04,000\nShips come.\n"
ICS = (
    "BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nSUMMARY:Harbour tour\r\nDTSTART;TZID=Europe/Berlin:20260501T100000\r\n"
    "LOCATION:Quay 3\\, Kiel\r\nBEGIN:VALARM\r\nDESCRIPTION:ring\r\nEND:VALARM\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
)
NOTEBOOK = {
    "nbformat": 4,
    "metadata": {"kernelspec": {"language": "python"}},
    "cells": [
        {"cell_type": "markdown", "source": ["# Harbour"]},
        {
            "cell_type": "code",
            "source": "print(3)",
            "outputs": [
                {"output_type": "stream", "text": ["3 basins\n"]},
                {"output_type": "display_data", "data": {"image/png": ""}},
            ],
        },
    ],
}


def packed(path: Path, parts: dict[str, str | bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    return path


def odf(path: Path, kind: str, body: str, **more: str) -> Path:
    said = f"application/vnd.oasis.opendocument.{kind}"
    manifest = (
        '<manifest:manifest xmlns:manifest="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0">'
        f'<manifest:file-entry manifest:full-path="/" manifest:media-type="{said}"/>'
        '<manifest:file-entry manifest:full-path="content.xml" manifest:media-type="text/xml"/>{}</manifest:manifest>'
    )
    content = more.get("doctype", "") + ODF.format(body)
    extra = more.get("manifest", "")
    return packed(path, {"mimetype": said, "content.xml": content, "META-INF/manifest.xml": manifest.format(extra)})


def odt(path: Path, **more: str) -> Path:
    body = '<text:h text:outline-level="1">Harbour</text:h><text:p>It has three basins.</text:p>'
    return odf(path, "text", f"<office:text>{body}</office:text>", **more)


def ods(path: Path) -> Path:
    cells = "".join(
        f'<table:table-cell office:value-type="string"><text:p>{word}</text:p></table:table-cell>'
        for word in ("Port", "Ships")
    )
    rows = f"<table:table-row>{cells}</table:table-row>" * 2
    return odf(
        path,
        "spreadsheet",
        f'<office:spreadsheet><table:table table:name="Fleet">{rows}</table:table></office:spreadsheet>',
    )


def odp(path: Path) -> Path:
    box = "<draw:frame><draw:text-box><text:p>Harbour slide</text:p></draw:text-box></draw:frame>"
    body = f'<office:presentation><draw:page draw:name="one">{box}</draw:page></office:presentation>'
    return odf(path, "presentation", body)


def epub(path: Path, **more: str) -> Path:
    chapter = XHTML.format("<h1>Basins</h1><p>The harbour has three.</p>")
    parts: dict[str, str | bytes] = {"META-INF/container.xml": CONTAINER, "book.opf": OPF, "c.xhtml": chapter}
    return packed(path, parts | {"mimetype": "application/epub+zip"} | more)


def xps(path: Path) -> Path:
    glyphs = '<Glyphs OriginX="{}" OriginY="{}" FontRenderingEmSize="12" UnicodeString="{}"/>'
    page = "<FixedPage xmlns='http://schemas.microsoft.com/xps/2005/06'>" + "".join(
        glyphs.format(*run) for run in ((10, 20, "Har"), (27, 20, "bour"), (52, 20, "report"), (10, 90, "Three basins"))
    )
    return packed(
        path,
        {
            "[Content_Types].xml": "<Types/>",
            "FixedDocSeq.fdseq": "<FixedDocumentSequence/>",
            "Documents/1/FixedDoc.fdoc": '<FixedDocument><PageContent Source="Pages/1.fpage"/></FixedDocument>',
            "Documents/1/Pages/1.fpage": page + "</FixedPage>",
        },
    )


def vsdx(path: Path) -> Path:
    page = "<PageContents><Shapes><Shape><Text>Harbour <cp/>master</Text></Shape></Shapes></PageContents>"
    return packed(path, {"[Content_Types].xml": "<Types/>", "visio/pages/page1.xml": page})


def hwpx(path: Path) -> Path:
    section = (
        '<hs:sec xmlns:hs="http://www.hancom.co.kr/hwpml/2011/section" '
        'xmlns:hp="http://www.hancom.co.kr/hwpml/2011/paragraph"><hp:p><hp:run><hp:t>Port 항구</hp:t></hp:run></hp:p>'
        "</hs:sec>"
    )
    package = (
        '<opf:package xmlns:opf="http://www.idpf.org/2007/opf/"><opf:manifest><opf:item id="section0" '
        'href="Contents/section0.xml" media-type="application/xml"/></opf:manifest><opf:spine>'
        '<opf:itemref idref="section0"/></opf:spine></opf:package>'
    )
    parts: dict[str, str | bytes] = {
        "mimetype": "application/hwp+zip",
        "version.xml": "<v/>",
        "Contents/content.hpf": package,
        "Contents/header.xml": '<hh:head xmlns:hh="http://www.hancom.co.kr/hwpml/2011/head"/>',
        "Contents/section0.xml": section,
    }
    return packed(path, parts)


def pages(path: Path) -> Path:
    preview = documents.pdf(path.with_suffix(".pdf"), 1).read_bytes()
    return packed(path, {"Index/Document.iwa": b"\0", "QuickLook/Preview.pdf": preview})


def metafile(path: Path) -> Path:
    """A placeable WMF with one rectangle."""
    rectangle = struct.pack("<IH4h", 7, 0x041B, 900, 900, 100, 100)
    end = struct.pack("<IH", 3, 0)
    body = rectangle + end
    header = struct.pack("<HHHIHIH", 1, 9, 0x300, (18 + len(body)) // 2, 1, 7, 0)
    place = struct.pack("<IHhhhhHI", 0x9AC6CDD7, 0, 0, 0, 1000, 1000, 500, 0)
    check = 0
    for word in struct.unpack("<10H", place):
        check ^= word
    path.write_bytes(place + struct.pack("<H", check) + header + body)
    return path


def mail(subject: str = "Harbour", attached: bytes = b"The attached basin.", name: str = "plan.txt") -> bytes:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "a@example.org", "b@example.org", subject
    message.set_content("The body of the mail.\n")
    message.add_attachment(attached, "application", "octet-stream", filename=name)
    return bytes(message)


def mbox(path: Path) -> Path:
    box = mailbox.mbox(str(path))
    for subject in ("First", "Second"):
        box.add(mailbox.mboxMessage(mail(subject)))
    box.close()
    return path


def mhtml(path: Path) -> Path:
    picture = io.BytesIO()
    Image.new("RGB", (40, 30), "red").save(picture, "PNG")
    message = EmailMessage()
    message["From"], message["Subject"], message["MIME-Version"] = "<Saved by a browser>", "Page", "1.0"
    message["Snapshot-Content-Location"] = "https://example.org/"
    message.set_content(
        "<html><body><h1>Harbour</h1><p>Three basins.</p><img src='https://example.org/a.png'></body></html>", "html"
    )
    message.add_related(picture.getvalue(), "image", "png", headers=["Content-Location: https://example.org/a.png"])
    path.write_bytes(bytes(message))
    return path


def written(data: str | bytes):  # type: ignore[no-untyped-def]
    def make(path: Path) -> Path:
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return path

    return make


def picture(kind: str):  # type: ignore[no-untyped-def]
    def make(path: Path) -> Path:
        return documents.image(path, ["Harbour master office"], kind)

    return make


def archive(path: Path) -> Path:
    return packed(
        path, {"a.txt": "The harbour.", "b/c.html": "<!doctype html><h1>Basins</h1><p>three</p>", "d.bin": b"\0\1" * 99}
    )


def tar(path: Path) -> Path:
    with tarfile.open(path, "w") as out:
        for name, data in (("a.txt", b"The harbour."), ("../../b.md", b"# Basins\n\n- one\n")):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            out.addfile(entry, io.BytesIO(data))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        out.addfile(link)
    return path


GOOD = {
    "rtf": (written(RTF), sniff.RTF, ["The harbour of Köln has **three** basins.", "Ships."]),
    "odt": (odt, sniff.ODT, ["# Harbour", "It has three basins."]),
    "ods": (ods, sniff.ODS, ["## Fleet", "| Port | Ships |"]),
    "odp": (odp, sniff.ODP, ["Harbour slide"]),
    "epub": (epub, sniff.EPUB, ["# Basins", "The harbour has three."]),
    "fb2": (written(FB2), sniff.FB2, ["# The harbour", "It has **three** basins."]),
    "docbook": (written(DOCBOOK), sniff.DOCBOOK, ["# The harbour", "## Basins", "- north", "dig()"]),
    "nxml": (written(JATS), sniff.JATS, ["# Tides", "Petersen Ada", "Method", "We measured the water."]),
    "opml": (written(OPML), sniff.OPML, ["# Plan", "- Harbour\n    - Basins"]),
    "xml": (
        written("<?xml version='1.0'?><note><to>Ada</to><body>Harbour</body></note>"),
        sniff.XML,
        ["Ada", "Harbour"],
    ),
    "ipynb": (
        written(json.dumps(NOTEBOOK)),
        sniff.IPYNB,
        ["# Harbour", "```python\nprint(3)\n```", "```text\n3 basins\n```"],
    ),
    "rst": (written(RST), sniff.RST, ["# Harbour", "`three` basins", "Kept text.", "```\ndig()\n```", "* one"]),
    "org": (written(ORG), sniff.ORG, ["# Plan", "# Harbour", "**three** basins", "```c\ndig();\n```", "| 1 | 2 |"]),
    "adoc": (written(ASCIIDOC), sniff.ASCIIDOC, ["# Harbour", "## Basins", "- north", "```\ndig()\n```", "| 1 | 2 |"]),
    "tex": (written(LATEX), sniff.LATEX, ["## Harbour", "It is Kiel", "**deep**", "$x^2$", "- north"]),
    "vtt": (written(VTT), sniff.VTT, ["**00:01.000 – 00:02.000** Ada: The harbour is open."]),
    "srt": (written(SRT), sniff.SRT, ["**00:00:03,000 – 00:00:04,000** Ships come."]),
    "ics": (
        written(ICS),
        sniff.ICS,
        ["## Harbour tour", "- **Start:** 2026-05-01 10:00 (Europe/Berlin)", "Quay 3, Kiel"],
    ),
    "json": (
        written('[{"port": "Kiel", "ships": 3}, {"port": "Ulm"}]'),
        sniff.JSON,
        ["| port | ships |", "| Kiel | 3 |"],
    ),
    "yaml": (written("port: Kiel\nships: &a 3\n"), sniff.YAML, ["```yaml\nport: Kiel"]),
    "toml": (written('[port]\nname = "Kiel"\n'), sniff.TOML, ["```toml\n[port]"]),
    "xps": (xps, sniff.XPS, ["Harbour report\n\nThree basins"]),
    "vsdx": (vsdx, sniff.VSDX, ["Harbour master"]),
    "svg": (written(SVG), sniff.SVG, ["Harbour basin", "![](assets/p001_img01.png)"]),
    "wmf": (metafile, sniff.WMF, ["![](assets/p001_img01.png)"]),
    "avif": (picture("AVIF"), sniff.AVIF, ["Harbour master office"]),
    "jp2": (picture("JPEG2000"), sniff.JP2, ["Harbour master office"]),
    "hwpx": (hwpx, sniff.HWPX, ["항구"]),
    "pages": (pages, sniff.IWORK, ["(1.0)"]),
    "eml": (written(mail()), sniff.EML, ["# Harbour", "The body of the mail.", "plan.txt", "The attached basin."]),
    "mbox": (mbox, sniff.MBOX, ["# First", "# Second", "The attached basin."]),
    "mhtml": (mhtml, sniff.MHTML, ["# Harbour", "Three basins.", "](assets/p001_img01.png)"]),
    "zip": (
        archive,
        sniff.ZIP,
        ["| a.txt | Plain text | 12 | page 2 |", "# b/c.html", "Basins", "`document_unsupported`"],
    ),
    "tar": (tar, sniff.TAR, ["| b.md | Markdown |", "The harbour.", "it is a link or a device"]),
    "gz": (written(gzip.compress(b"The harbour in a packed file.")), sniff.GZIP, ["The harbour in a packed file."]),
}
ZIPPED = ("odt", "ods", "odp", "epub", "xps", "vsdx", "hwpx", "pages", "zip")
CLEAN_CODES = {"document_broken", "document_unsupported", "document_mislabelled", "document_bomb", "document_encrypted"}


@pytest.mark.parametrize("ending", GOOD)
def test_a_good_file_is_read_whatever_its_name(bench: Bench, tmp_path: Path, ending: str) -> None:
    make, media_type, expected = GOOD[ending]
    path = make(tmp_path / f"good.{ending}")

    parsed = bench.parse(path)

    assert media_type == parsed.media_type
    text = "\n\n".join(page.markdown for page in parsed.pages)
    assert [] == [piece for piece in expected if piece not in text], text
    assert list(range(len(parsed.pages))) == [page.index for page in parsed.pages]
    for figure in parsed.figures:
        assert (bench.folder / "assets" / figure.name).stat().st_size == figure.size


@pytest.mark.parametrize("ending", [one for one in GOOD if one not in ("yaml", "toml", "rst", "org", "adoc", "json")])
def test_the_bytes_tell_the_type(tmp_path: Path, ending: str) -> None:
    make, media_type, _ = GOOD[ending]

    assert media_type == sniff.sniff(make(tmp_path / f"good.{ending}"), "")


@pytest.mark.parametrize("ending", GOOD)
@pytest.mark.parametrize("share", [0.5, 0.9])
def test_a_truncated_file_ends_with_text_or_a_code(bench: Bench, tmp_path: Path, ending: str, share: float) -> None:
    path = GOOD[ending][0](tmp_path / f"cut.{ending}")
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])

    code, pages = outcome(bench, path)

    assert code in CLEAN_CODES | {"read"}
    assert ("read" == code) is bool(pages)
    assert not (pages and ending in ZIPPED)


def outcome(bench: Bench, path: Path) -> tuple[str, list[str]]:
    try:
        return "read", [page.markdown for page in bench.parse(path).pages]
    except DocumentError as error:
        return error.code, []


@pytest.mark.parametrize(
    ("ending", "data", "codes"),
    [
        (
            "fb2",
            FB2.replace('<?xml version="1.0"?>', '<!DOCTYPE a [<!ENTITY a "aa"><!ENTITY b "&a;&a;">]>'),
            {"document_bomb"},
        ),
        ("xml", '<!DOCTYPE a [<!ENTITY f SYSTEM "file:///etc/passwd">]><a>&f;</a>', {"document_bomb"}),
        (
            "svg",
            '<svg xmlns="http://www.w3.org/2000/svg" width="300000" height="300000"><text>big</text></svg>',
            {"read"},
        ),
        ("rtf", b"{\\rtf1" + b"{" * 50_000 + b"deep", {"read", "document_broken"}),
        ("ipynb", '{"nbformat": 4, "cells": [[], 3, {"cell_type": "code", "outputs": [7]}]}', {"read"}),
        ("json", "[" * 100_000, {"read"}),
        ("opml", "<?xml version='1.0'?><opml><body>" + "<outline text='a'>" * 5000 + "</body></opml>", {"read"}),
        ("fb2", FB2.replace("<p>It", "<section>" * 3000 + "<p>It"), {"read", "document_broken"}),
        ("ics", "BEGIN:VCALENDAR\n" + "BEGIN:VEVENT\n" * 1000, {"read"}),
        ("tex", "\\begin{equation}" * 1000 + "\\section{" * 1000, {"read"}),
        ("gz", gzip.compress(bytes(64 << 20)), {"document_bomb"}),
        ("hwp", b"HWP Document File V3.00 \x1a" + bytes(99), {"document_unsupported"}),
        ("doc", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\xff" * 4096, {"document_mislabelled"}),
    ],
)
def test_a_hostile_file_harms_nothing(
    bench: Bench, tmp_path: Path, ending: str, data: str | bytes, codes: set[str]
) -> None:
    path = written(data)(tmp_path / f"evil.{ending}")

    code, pages = outcome(bench, path)

    assert code in codes
    assert "root:" not in "".join(pages)


def test_a_doctype_of_old_openoffice_is_dropped_and_one_with_entities_refused(bench: Bench, tmp_path: Path) -> None:
    old = '<!DOCTYPE office:document-content PUBLIC "-//OpenOffice.org//DTD OfficeDocument 1.0//EN" "office.dtd">'

    assert "It has three basins." in bench.parse(odt(tmp_path / "a.odt", doctype=old)).markdown
    with pytest.raises(DocumentError) as caught:
        bench.parse(odt(tmp_path / "b.odt", doctype='<!DOCTYPE a [<!ENTITY b "c">]>'))
    assert "document_bomb" == caught.value.code


def test_a_container_whose_names_are_damaged_is_broken(bench: Bench, tmp_path: Path) -> None:
    path = odt(tmp_path / "a.odt")
    data = bytearray(path.read_bytes())
    entry = data.index(b"content.xml")
    data[entry - 24] |= 8  # the name is UTF-8 from here on, and is none
    data[entry] = 0xA3
    path.write_bytes(data)

    assert "document_broken" == outcome(bench, path)[0]


def test_what_is_encrypted_is_said_to_be(bench: Bench, tmp_path: Path) -> None:
    lock = '<e xmlns:x="x"><x:EncryptedData><x:CipherReference URI="c.xhtml"/></x:EncryptedData></e>'
    book = epub(tmp_path / "a.epub", **{"META-INF/encryption.xml": lock})
    text = odt(
        tmp_path / "b.odt",
        manifest='<manifest:file-entry manifest:full-path="x"><manifest:encryption-data/></manifest:file-entry>',
    )
    for path in (book, text):
        with pytest.raises(DocumentError) as caught:
            bench.parse(path)
        assert "document_encrypted" == caught.value.code


def test_equal_members_are_read_once_and_archives_in_archives_have_a_limit(bench: Bench, tmp_path: Path) -> None:
    inner = packed(tmp_path / "0.zip", {"x.txt": "core of it"}).read_bytes()
    for number in range(1, 5):
        parts: dict[str, str | bytes] = {f"{number}.zip": inner, "same.txt": "hello there", "again.txt": "hello there"}
        inner = packed(tmp_path / f"{number}.zip", parts).read_bytes()

    parsed = bench.parse(tmp_path / "4.zip")

    assert "same as same.txt" in parsed.markdown
    assert "`document_bomb`: " in parsed.markdown
    assert "core of it" not in parsed.markdown
    assert {"3.zip", "again.txt"} <= {member["name"] for member in parsed.facts["members"]}


def test_more_members_than_allowed_are_listed_but_not_read(bench: Bench, tmp_path: Path) -> None:
    names = Limits().members + 5
    path = packed(tmp_path / "many.zip", {f"{number}.txt": f"text {number}" for number in range(names)})

    parsed = bench.parse(path)

    assert Limits().members + 1 == len(parsed.pages)
    assert 5 == parsed.pages[0].markdown.count("`document_bomb`: more than")


def test_an_outlook_message_without_its_streams_is_broken_not_a_crash(bench: Bench, tmp_path: Path) -> None:
    path = documents.encrypted_office(tmp_path / "a.msg")
    data = path.read_bytes().replace("EncryptedPackage".encode("utf-16-le"), "__properties_ver".encode("utf-16-le"))
    path.write_bytes(data)

    with pytest.raises((DocumentError, StageFailed)) as caught:
        bench.parse(path)

    assert caught.value.code in CLEAN_CODES


def test_text_of_rtf_has_no_control_words() -> None:
    assert "The harbour of Köln has three basins.\nShips." == plain_text(RTF).strip()
    assert "Ω x" == plain_text(rb"{\rtf1 \u937 ? x}").strip()


def test_a_control_word_never_becomes_a_result(bench: Bench, tmp_path: Path) -> None:
    path = written(RTF[:-30])(tmp_path / "cut.txt")

    assert "\\pard" not in bench.parse(path).markdown
