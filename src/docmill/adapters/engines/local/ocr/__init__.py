"""Text from pictures: turned upright, straightened, found, recognised, put in order, and written as Markdown.

upright  which way up the page is, and by how much it is skewed
models   finding lines and reading them, a small model first and a better one where it was unsure
blanks   between words, where a recogniser overlooked them
layout   columns, page heads and feet, rows: the order in which people read
grids    tables, with lines drawn around their cells or without
writing  paragraphs, headings, lists
chinese  blanks and marks in it, alike over the whole page
verdict  whether a page of a PDF needs any of this
"""

from __future__ import annotations

from .page import Reading, read
from .verdict import reason_for_ocr

__all__ = ["Reading", "read", "reason_for_ocr"]
