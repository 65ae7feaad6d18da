"""The frameworks' own classes, fed by the service. They take seconds to import: each test imports its own."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from docmill.client import Client, TaskEnded, Unauthorized, Unreachable
from docmill.loaders.reading import AT_ONCE, items_of, read
from support.serving import Service

SAMPLES = Path(__file__).parents[2] / "samples"
FILES = [SAMPLES / "notes.docx", SAMPLES / "data.csv", SAMPLES / "zeichen.txt"]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Service(tmp_path_factory.mktemp("loaders") / "data") as service:
        yield service.url


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    path = tmp_path / "broken.pdf"
    path.write_bytes(b"%PDF-1.7 nothing")
    return path


def test_langchain_gets_documents_in_order(url: str) -> None:
    from docmill.loaders.langchain import DocmillLoader

    with Client(url) as client:
        found = DocmillLoader(FILES, client=client).load()

    assert [path.name for path in FILES] == [one.metadata["file_name"] for one in found]
    assert found[0].page_content.startswith("# ")
    assert {"source", "task_id", "document_id", "page_count", "language", "engine"} <= found[0].metadata.keys()


def test_page_count_and_language_are_those_of_the_document(url: str) -> None:
    from docmill.loaders.langchain import DocmillLoader

    with Client(url) as client:
        [english, german] = DocmillLoader(
            [SAMPLES / "report.en.pdf", SAMPLES / "rechnung.de.pdf"], client=client
        ).lazy_load()

    assert (2, "en") == (english.metadata["page_count"], english.metadata["language"])
    assert "de" == german.metadata["language"]


def test_langchain_reads_one_file_too(url: str) -> None:
    from docmill.loaders.langchain import DocmillLoader

    with Client(url) as client:
        [found] = DocmillLoader(str(FILES[1]), client=client).lazy_load()

    assert "|" in found.page_content


def test_a_client_that_was_lent_stays_open(url: str) -> None:
    from docmill.loaders.langchain import DocmillLoader
    from docmill.loaders.llamaindex import DocmillReader

    with Client(url) as client:
        assert 1 == len(DocmillLoader(FILES[1], client=client).load())
        assert 1 == len(DocmillReader(client).load_data(FILES[1]))
        assert 1 == len(DocmillReader(client).load_data(FILES[1]))
        assert next(client.tasks()).status == "completed"


def test_one_bad_file_does_not_end_the_batch(
    url: str, broken: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from docmill.loaders.langchain import DocmillLoader

    with Client(url) as client:
        loader = DocmillLoader([broken, FILES[2], tmp_path / "missing.pdf", FILES[1]], client=client)
        found = loader.load()

    assert ["zeichen.txt", "data.csv"] == [one.metadata["file_name"] for one in found]
    assert [(str(broken), "document_broken"), (str(tmp_path / "missing.pdf"), "file_unreadable")] == [
        (one.source, one.code) for one in loader.failures
    ]
    assert all(one.message for one in loader.failures)
    assert 2 == sum("was not read" in one.message for one in caplog.records)


def test_one_bad_file_ends_the_batch_if_that_is_wanted(url: str, broken: Path) -> None:
    from docmill.loaders.langchain import DocmillLoader

    with Client(url) as client:
        found = DocmillLoader([FILES[2], broken], client=client, on_error="raise").lazy_load()

        assert "zeichen.txt" == next(found).metadata["file_name"]
        with pytest.raises(TaskEnded):
            next(found)


def test_what_is_wrong_with_the_service_is_raised_in_any_case(tmp_path: Path) -> None:
    from docmill.loaders.langchain import DocmillLoader

    with Service(tmp_path / "data", DOCMILL_REQUIRE_AUTH="true") as service:
        with Client(service.url, api_key="dm_wrong") as client, pytest.raises(Unauthorized):
            DocmillLoader(FILES, client=client).load()
        gone = service.url
    with Client(gone) as client, pytest.raises(Unreachable):
        DocmillLoader(FILES[:1], client=client).load()


def test_a_folder_is_all_its_files(url: str, tmp_path: Path) -> None:
    from docmill.loaders.langchain import DocmillLoader

    folder = tmp_path / "folder"
    (folder / "inner").mkdir(parents=True)
    (folder / ".hidden").mkdir()
    (folder / "_data.csv").mkdir()
    shutil.copy(FILES[1], folder / "data.csv")
    (folder / "_data.csv" / "data.md").write_text("the twin")
    (folder / ".hidden" / "a.txt").write_text("hidden")
    (folder / ".DS_Store").write_text("hidden")
    (folder / "inner" / "note.txt").write_text("a note")

    with Client(url) as client:
        found = DocmillLoader(folder, client=client).load()

    assert ["data.csv", "note.txt"] == [one.metadata["file_name"] for one in found]


def test_llamaindex_shows_a_model_no_addresses(url: str, broken: Path) -> None:
    from llama_index.core.schema import MetadataMode

    from docmill.loaders.llamaindex import DocmillReader

    with Client(url) as client:
        reader = DocmillReader(client)
        found = reader.load_data([*FILES, broken], extra_info={"shelf": "A"})

    assert 3 == len(found)
    assert ["document_broken"] == [one.code for one in reader.failures]
    shown = found[0].get_content(MetadataMode.LLM)
    assert "shelf: A" in shown
    assert "task_id" not in shown
    assert "document_id" in found[0].metadata


def test_haystack_runs_it_in_a_pipeline_that_can_be_saved(url: str) -> None:
    from haystack import Pipeline

    from docmill.loaders.haystack import DocmillConverter

    pipeline = Pipeline()
    pipeline.add_component("docmill", DocmillConverter(url=url, on_error="raise"))
    again = Pipeline.loads(pipeline.dumps(), allowed_modules=["docmill.loaders.haystack"])

    found = again.run({"docmill": {"sources": FILES, "meta": {"shelf": "A"}}})["docmill"]["documents"]

    assert [path.name for path in FILES] == [one.meta["file_name"] for one in found]
    assert {"A"} == {one.meta["shelf"] for one in found}


def test_haystack_takes_byte_streams_and_files_side_by_side(url: str, broken: Path) -> None:
    from haystack.dataclasses import ByteStream

    from docmill.loaders.haystack import DocmillConverter

    named = ByteStream(FILES[1].read_bytes(), meta={"file_path": "inbox/data.csv", "shelf": "A"})
    nameless = ByteStream.from_string("# Minutes", mime_type="text/markdown")

    done = DocmillConverter(url=url).run(
        sources=[named, nameless, FILES[2], broken], meta=[{"n": 1}, {"n": 2}, {"n": 3}, {"n": 4}]
    )

    assert [(1, "data.csv"), (2, "document.md"), (3, "zeichen.txt")] == [
        (one.meta["n"], one.meta["file_name"]) for one in done["documents"]
    ]
    assert ("A", "inbox/data.csv") == (done["documents"][0].meta["shelf"], done["documents"][0].meta["source"])
    assert "# Minutes" == (done["documents"][1].content or "").strip()
    assert [(str(broken), "document_broken")] == [(one["source"], one["code"]) for one in done["failures"]]
    with pytest.raises(ValueError, match="2 entries for 1 sources"):
        DocmillConverter(url=url).run(sources=[nameless], meta=[{}, {}])


def test_more_than_a_few_come_in_order_too(url: str, tmp_path: Path) -> None:
    files = [tmp_path / f"{n:02}.txt" for n in range(AT_ONCE + 3)]
    for n, file in enumerate(files):
        file.write_text(f"number {n}")

    with Client(url) as client:
        found = [one.markdown.strip() for one in read(items_of(tmp_path), client, [])]

    assert [f"number {n}" for n in range(len(files))] == found
