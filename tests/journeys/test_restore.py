"""A database and objects of different age (R24): each read works or says why with a code, and work goes on."""

from pathlib import Path

import pytest

from bench.chaos.restore import CASES, restore


@pytest.mark.slow
def test_backups_of_different_age_degrade_reads_item_by_item(tmp_path: Path) -> None:
    older_database, older_objects = restore(tmp_path)

    assert [*CASES] == [older_database.case, older_objects.case]
    assert [] == older_database.violations + older_objects.violations
    assert {"task_not_found", "document_not_found"} == {
        code for reads in older_database.late.values() for _, code in reads.values()
    }
    assert (200, 4) == older_objects.listed, "the list shows what the database knows, also if its objects are gone"
    for reads in older_objects.late.values():
        assert (200, 200) == (reads["events"][0], reads["document"][0])
        assert (404, "blob_not_found") == reads["bytes"]
