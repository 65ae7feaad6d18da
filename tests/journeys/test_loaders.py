"""The frameworks' own classes, fed by the service. They take seconds to import: each test imports its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from docmill.client import Client, TaskEnded
from docmill.loaders.reading import AT_ONCE, read
from support.serving import Service

SAMPLES = Path(__file__).parents[2] / "samples"
FILES = [SAMPLES / "notes.docx", SAMPLES / "data.csv", SAMPLES / "zeichen.txt"]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Service(tmp_path_factory.mktemp("loaders") / "data") as service:
        yield service.url


def test_langchain_gets_documents_in_order(url: str) -> None:
    from docmill.loaders.langchain import DocmillLoader

    found = DocmillLoader(FILES, client=Client(url)).load()

    assert [path.name for path in FILES] == [one.metadata["file_name"] for one in found]
    assert found[0].page_content.startswith("# ")
    assert {"source", "task_id", "document_id", "pages", "engine"} <= found[0].metadata.keys()


def test_langchain_reads_one_file_too(url: str) -> None:
    from docmill.loaders.langchain import DocmillLoader

    [found] = DocmillLoader(str(FILES[1]), client=Client(url)).lazy_load()

    assert "|" in found.page_content


def test_llamaindex_shows_a_model_no_addresses(url: str) -> None:
    from llama_index.core.schema import MetadataMode

    from docmill.loaders.llamaindex import DocmillReader

    found = DocmillReader(Client(url)).load_data(FILES, extra_info={"shelf": "A"})

    assert 3 == len(found)
    shown = found[0].get_content(MetadataMode.LLM)
    assert "shelf: A" in shown
    assert "task_id" not in shown
    assert "document_id" in found[0].metadata


def test_haystack_runs_it_in_a_pipeline_that_can_be_saved(url: str) -> None:
    from haystack import Pipeline

    from docmill.loaders.haystack import DocmillConverter

    pipeline = Pipeline()
    pipeline.add_component("docmill", DocmillConverter(url=url))
    again = Pipeline.loads(pipeline.dumps(), allowed_modules=["docmill.loaders.haystack"])

    found = again.run({"docmill": {"sources": FILES, "meta": {"shelf": "A"}}})["docmill"]["documents"]

    assert [path.name for path in FILES] == [one.meta["file_name"] for one in found]
    assert {"A"} == {one.meta["shelf"] for one in found}


def test_what_cannot_be_read_is_an_error_with_its_code(url: str, tmp_path: Path) -> None:
    from docmill.loaders.langchain import DocmillLoader

    broken = tmp_path / "broken.pdf"
    broken.write_bytes(b"%PDF-1.7 nothing")
    found = DocmillLoader([FILES[2], broken], client=Client(url)).lazy_load()

    assert "zeichen.txt" == next(found).metadata["file_name"]
    with pytest.raises(TaskEnded):
        next(found)


def test_more_than_a_few_come_in_order_too(url: str, tmp_path: Path) -> None:
    files = [tmp_path / f"{n}.txt" for n in range(AT_ONCE + 3)]
    for n, file in enumerate(files):
        file.write_text(f"number {n}")

    with Client(url) as client:
        assert [f"number {n}" for n in range(len(files))] == [one.markdown.strip() for one in read(files, client)]
