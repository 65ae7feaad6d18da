"""Libraries: where originals and their twins lie."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from docmill.core.access import Owner
from docmill.core.errors import Invalid
from docmill.core.twin import Twin
from docmill.ports import Library, Place, Written


class Shelves:
    """Several libraries as one: `onedrive:/...` and `objects:/...` go where they say, everything else to the first."""

    def __init__(self, libraries: Mapping[str, Library]) -> None:
        """*libraries*: scheme -> library; the one without a scheme is `""`."""
        self._libraries = dict(libraries)

    def folder(self, who: Owner, project_id: int, task_id: int, wanted: str, *, is_single_user: bool = False) -> Place:
        return self._at(wanted).folder(who, project_id, task_id, wanted, is_single_user=is_single_user)

    async def keep_original(self, folder: Place, name: str, source: Path) -> None:
        await self._at(folder).keep_original(folder, name, source)

    async def write(self, folder: Place, twin: Twin, assets: Mapping[str, Path], *, force: bool = False) -> Written:
        return await self._at(folder).write(folder, twin, assets, force=force)

    async def close(self) -> None:
        for library in self._libraries.values():
            await library.close()

    def _at(self, place: Place) -> Library:
        scheme, colon, _ = place.partition(":")
        if colon and scheme in {"onedrive", "objects"} | self._libraries.keys():
            if scheme not in self._libraries:
                raise Invalid("twin_target_invalid", why=f"there is no library '{scheme}' here")
            return self._libraries[scheme]
        return self._libraries[""]
