"""The console: server-rendered pages for people, on the same use cases as the API.

Pages are Jinja templates; plain ES modules make them live; nothing is built, vendored or fetched from elsewhere.
Reading, cancelling and retrying work without JavaScript.
"""

from docmill.console.app import Console, ConsoleOptions

__all__ = ["Console", "ConsoleOptions"]
