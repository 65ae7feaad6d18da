"""PDF: pages of the text layer or of a recogniser, with headings, lists, tables and figures."""

from .document import read
from .survey import LONGEST_SIDE, is_drawable, opened, rendered

__all__ = ["LONGEST_SIDE", "is_drawable", "opened", "read", "rendered"]
