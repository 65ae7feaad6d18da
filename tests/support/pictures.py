"""Pictures of one kind or another, whole or hurt."""

from __future__ import annotations

import base64
import io
import random
from collections.abc import Iterator
from typing import Any

from PIL import Image, ImageDraw


def a_jpeg(size: tuple[int, int] = (320, 200), paper: str = "ivory", mode: str = "RGB", **options: Any) -> bytes:
    picture = Image.new("RGB", size, paper) if paper == "white" else drawn(size, paper)
    out = io.BytesIO()
    picture.convert(mode).save(out, "JPEG", **options)
    return out.getvalue()


def with_a_gap(jpeg: bytes) -> bytes:
    """The second half of its data is missing, its end is there."""
    start = jpeg.index(b"\xff\xda")
    return jpeg[: (start + len(jpeg)) // 2] + b"\xff\xd9"


def a_webp(size: tuple[int, int] = (320, 200), mode: str = "RGB", **options: Any) -> bytes:
    out = io.BytesIO()
    drawn(size).convert(mode).save(out, "WEBP", **options)
    return out.getvalue()


def drawn(size: tuple[int, int], paper: str = "ivory") -> Image.Image:
    picture = Image.new("RGB", size, paper)
    draw = ImageDraw.Draw(picture)
    for step in range(0, min(size), 7):
        draw.line((step, 0, size[0] - step, size[1]), (step % 256, 90, 200 - step % 200), 3)
    return picture


def with_a_turned_bit(data: bytes, at: int, bit: int = 3) -> bytes:
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]


SIDES = (1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100, 191)


def contents(size: tuple[int, int], chance: random.Random) -> Image.Image:
    """Noise, lines, letters, one colour, or a slope."""
    match chance.randrange(5):
        case 0:
            return Image.frombytes("RGB", size, chance.randbytes(3 * size[0] * size[1]))
        case 1:
            return drawn(size)
        case 2:
            page = Image.new("RGB", size, "white")
            for line in range(0, size[1], 14):
                ImageDraw.Draw(page).text((3, line), "Total amount 417 Euro, harbour report", "black")
            return page
        case 3:
            return Image.new("RGB", size, chance.choice(["white", "black", "red", "#808080"]))
        case _:
            return Image.linear_gradient("L").resize(size).convert("RGB")


def sound_jpegs(count: int) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Of every way to write them, each with how it was made."""
    chance = random.Random("jpeg")
    for _ in range(count):
        size, mode = (chance.choice(SIDES), chance.choice(SIDES)), chance.choice(("RGB", "L", "CMYK"))
        restarts = chance.choice([{}, {}, {"restart_marker_blocks": chance.randint(1, 9)}, {"restart_marker_rows": 1}])
        options: dict[str, Any] = {
            "quality": chance.choice([1, 5, 20, 50, 75, 85, 92, 97, 100]),
            "subsampling": chance.choice([0, 1, 2]),
            "progressive": chance.random() < 0.3,
            "optimize": chance.random() < 0.3,
            **restarts,
        }
        out = io.BytesIO()
        contents(size, chance).convert(mode).save(out, "JPEG", **options)
        yield {"size": size, "mode": mode, **options}, out.getvalue()


def sound_webps(count: int) -> Iterator[tuple[dict[str, Any], bytes]]:
    chance = random.Random("webp")
    for _ in range(count):
        size = chance.choice(SIDES), chance.choice(SIDES)
        options: dict[str, Any] = {
            "quality": chance.choice([0, 5, 30, 50, 75, 80, 95, 100]),
            "method": chance.randint(0, 6),
            "lossless": chance.random() < 0.3,
            "exact": chance.random() < 0.3,
            "alpha_quality": chance.choice([0, 40, 100]),
        }
        picture = contents(size, chance)
        has_alpha = chance.random() < 0.4
        if has_alpha:
            picture.putalpha(contents(size, chance).convert("L"))
        others = [contents(size, chance)] if chance.random() < 0.15 else []
        more = {"save_all": True, "append_images": others} if others else {}
        out = io.BytesIO()
        picture.save(out, "WEBP", **options, **more)
        yield {"size": size, "alpha": has_alpha, "frames": 1 + len(others), **options}, out.getvalue()


FOUR_PARTS = base64.b85decode(
    "Qb|TeGy?ztS4BclR!}$~Cj$TgP#6H60V*H>KmY(o2!(}+g@lNL0svTr_y_n8;1An3lHb8E)-P6iZu%AatNH`-1NaZ%59)959gshOKd2lazkvP#"
    "{*8R{`vCg^{sZ^}(g*kt;18G|;6H#rr+-NP&HM-O2bc%=58#Kv-_n18@&Nw<{sZ_^{0IO4z>nZRfIozP`Fq2^K!1S#D}Po0|MUaY1NsB^|Mh~;"
    "$glFn_}q)u5X==~wRt--j`tE^m+((?E@`y(T0mso%txt{Ff?jL(x@|r1!rOaqyPYM004{t0Q#>4U*I7r>jTv@f?{caPa^)oxa&$Q|3^PwPwDn7"
    ")Yqu1wo178@WquinLDj^{T_cCw#9fS53niRTl)Iwm3GBK!oPCUjk;R;6R@tlYVVceb@<|9F00W9B3vR_uo|uez7J$Soga!<C5OgGCyND5+ZSBZ"
    "Vlk>Lr^;ZBIkuuo@foL3-K*@H><liWj(<9Udn!460gAAE7bAM>#;*B^Ko1Rq5R4&SmLX~{9ml+8wrEkG8$Aqo*(|Fan);u{F}%6!z#WGP$P{`w"
    "o3@bsJciUML4)$U?7e?cxK%UR<->raQpx+Tw|b{?Y-G!(<LFgNMM3BJFh*_6>;v6m2TH9OluUetItRlm=`GuHwm|BQ%cjZerns8U9-Ew;*@+=8"
    "l#pOViN}hd@GEm4$}Yd3N43N7Pq_)GkFTzYS8P-)EB7rp+oi9eI|}Q@uK8XkUydds>b($xC4(e$x&N+uHH=s)ZrHl!n-PssWj+J{?b>*@ew9%q"
    "2drS@;{z+G<Dbr;9?Fhi0Aj2k1<2mI@vFXKhzdn4NC2Hk0+pk+uG}PH$ax|QpMSj{uD_H+b1b}7Jp-#3sphXhVK5C*T}ic(1^$L)hSVuRgYvuV"
    "y?;@-RWsS<L{gBAcrZZf^2Nl&E5g$dQ$SwNm<x~aoiWY6d0X9i!Ikcw=u=N^1;$5VsC9Np4*&>!nX|<pWgEIa8N$3I7-n2+FtjeiuS{LV|FuAQ"
    "ZcQOp0bG_J862K06*p{Mb4`fGsIs2{|Mu-XTR%#uk^=Am"
)
"""A WebP whose tokens stand in four parts, written by libvpx: Pillow writes one."""
