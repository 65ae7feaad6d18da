"""PDF: pages of the text layer or of a recogniser, with headings, lists, tables and figures."""

from .document import conclude, read, read_part
from .survey import LONGEST_SIDE, is_drawable, opened, rendered

__all__ = ["LONGEST_SIDE", "conclude", "is_drawable", "opened", "read", "read_part", "rendered"]
