"""Every page, in every language, under a strict policy; and what plain forms can do."""

import asyncio
import re
from functools import partial
from pathlib import Path
from urllib.parse import unquote
from uuid import uuid4

import pytest

from docmill.console.pages.tasks import PAGE
from docmill.core import machine
from docmill.core.task import Fault, Wishes
from docmill.ports import NewTask, Search

ETL = "/api/v1/etl"
SAMPLES = Path(__file__).parents[3] / "samples"

PAGES = ("/", "/tasks", "/tasks?show=attention", "/rules", "/rules/new", "/rules/1", "/deliveries", "/workers")
PAGES += ("/settings", "/reference", "/tasks?show=running&project=1&name=inv&status=pending")
WORDS = {"en": "Inbox", "de": "Eingang", "zh": "收件箱"}


@pytest.mark.parametrize("language", WORDS)
async def test_every_page_speaks_the_visitors_language_and_needs_nothing_inline(visitor, language):
    task_id = await visitor.submit()

    for path in (*PAGES, f"/tasks/{task_id}", f"/tasks/{task_id}/live"):
        answer = await visitor.http.get(path, headers={"Accept-Language": f"fr, {language};q=0.8, en;q=0.5"})

        assert 200 == answer.status_code, path
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert [] == re.findall(r"<style|\sstyle=|<script(?![^>]+\ssrc=)|\son[a-z]+=", answer.text), path
        if not path.endswith("/live"):
            assert WORDS[language] in answer.text, path


async def test_language_and_theme_are_rendered_by_the_server(visitor):
    answer = await visitor.fill("/tasks", "/preferences", docmill_language="de", docmill_theme="dark", next="/rules")
    assert (303, "/rules") == (answer.status_code, answer.headers["location"])

    page = await visitor.see("/rules", **{"Accept-Language": "zh"})

    assert '<html lang="de" data-theme="dark">' in page
    assert "Regeln" in page


@pytest.mark.parametrize("elsewhere", ["//evil.example/", "https://evil.example/", "/\\evil.example", "javascript:x"])
async def test_nobody_is_sent_elsewhere(visitor, elsewhere):
    answer = await visitor.fill("/tasks", "/preferences", docmill_theme="dark", next=elsewhere)

    assert "/" == answer.headers["location"]


async def test_cancel_and_retry_work_with_plain_forms(visitor):
    task_id = await visitor.submit()
    page = f"/tasks/{task_id}"

    answer = await visitor.fill(page, f"{page}/cancel")
    assert (303, f"{page}?said=cancelled") == (answer.status_code, answer.headers["location"])
    assert "Retry the task to process it again." in await visitor.see(answer.headers["location"])

    await visitor.fill(page, f"{page}/retry", from_stage="mineru")
    assert "Waiting for a free worker." in await visitor.see(page)

    await visitor.claim(task_id)
    refused = await visitor.fill(page, f"{page}/cancel")
    assert 409 == refused.status_code
    assert "task_running" in refused.text
    asked = await visitor.fill(page, f"{page}/cancel", force="1")
    assert (200, True) == (asked.status_code, "pages read so far are discarded" in asked.text)
    assert "mineru_parsing" == (await visitor.http.get(f"{ETL}/tasks/{task_id}")).json()["status"]
    await visitor.fill(page, f"{page}/cancel", force="1", confirmed="1")
    assert "Force cancelled" in await visitor.see(page)


async def test_many_tasks_are_changed_at_once_and_refusals_are_counted(visitor):
    ids = [await visitor.submit(f"{n}.pdf") for n in range(3)]
    await visitor.claim(ids[0])

    answer = await visitor.fill("/tasks", "/tasks/bulk", action="cancel", task=[str(one) for one in ids])

    assert "/tasks?done=2&refused=1" == answer.headers["location"]
    assert "2 tasks updated." in await visitor.see(answer.headers["location"])


async def test_a_forced_cancel_of_many_asks_first_and_names_them(visitor):
    ids = [await visitor.submit(f"{n}.pdf") for n in "ab"]
    for one in ids:
        await visitor.claim(one)
    chosen = [str(one) for one in ids]

    asked = await visitor.fill("/tasks", "/tasks/bulk", action="force", task=chosen)
    assert "Force cancel 2 tasks?" in asked.text
    assert re.search(r"<li>[ab]\.pdf, [ab]\.pdf</li>", asked.text)
    assert 2 == asked.text.count('<input type="hidden" name="task"')
    answer = await visitor.fill("/tasks", "/tasks/bulk", action="force", task=chosen, confirmed="1")
    assert "/tasks?done=2&refused=0" == answer.headers["location"]


async def test_deleting_a_rule_asks_first(visitor):
    await visitor.fill("/rules/new", "/rules/new", name="mine", mode="skip", json_schema="", strategy="")

    asked = await visitor.fill("/rules/2", "/rules/2/delete")

    assert "Delete the rule mine?" in asked.text
    assert "mine" in await visitor.see("/rules")
    await visitor.fill("/rules/2", "/rules/2/delete", confirmed="1")
    assert "Delete the rule" not in await visitor.see("/rules")
    assert 404 == (await visitor.http.get("/rules/2")).status_code


async def failed(visitor, code: str, *names: str) -> list[int]:
    ids = []
    for name in names:
        ids.append(await visitor.submit(name))
        await visitor.claim(ids[-1])
        task = await visitor.ports.ledger.get(ids[-1])
        fault = Fault(code, "it failed", "mineru")
        await visitor.ports.ledger.decide(
            task.id,
            lambda t, a, fault=fault: machine.on_failure(t, a, fault, retryable=False, crashed=False, next_id=uuid4()),
            attempt_id=task.attempt_id,
        )
    return ids


async def test_equal_failures_are_counted_over_all_pages_and_retried_together(visitor):
    """More of them than a page holds, and others that the filter leaves out."""
    many = await failed(visitor, "storage_failed", *(f"bill-{n}.pdf" for n in range(PAGE + 10)))
    await failed(visitor, "storage_failed", "other.pdf")

    assert f"{PAGE + 11} tasks failed with the same error" in await visitor.see("/tasks?show=attention")
    assert f"Retry all {PAGE + 10}" in await visitor.see("/tasks?show=attention&name=BILL")
    answer = await visitor.fill(
        "/tasks", "/tasks/retry-failed", code="storage_failed", name="bill", next="/tasks?show=attention"
    )

    assert f"/tasks?show=attention&done={PAGE + 10}&refused=0" == answer.headers["location"]
    counts = await visitor.ports.ledger.counts()
    assert (len(many), 1) == (counts["pending"], counts["failed"])


async def test_no_retry_is_offered_where_it_does_not_help(visitor):
    await failed(visitor, "document_encrypted", "a.pdf", "b.pdf")

    page = await visitor.see("/tasks?show=attention")

    assert "2 tasks failed with the same error" in page
    assert "/tasks/retry-failed" not in page
    assert "does not help" in page


async def test_a_search_finds_the_oldest_of_many_tasks(visitor):
    oldest = await visitor.submit("Nadel März.pdf")
    await add_tasks(visitor, 2_100)

    for part in ("nadel", "MÄRZ"):
        page = await visitor.see(f"/tasks?name={part}")
        assert f'id="task-{oldest}"' in page
        assert "No match" not in page
    assert "No matching tasks" in await visitor.see("/tasks?name=needle")


async def test_a_search_that_takes_too_long_goes_on_where_it_ended(visitor, monkeypatch):
    oldest = await visitor.submit("Nadel.pdf")
    await add_tasks(visitor, 60)
    monkeypatch.setattr("docmill.console.pages.tasks.MAX_SEARCH_S", -1)
    monkeypatch.setattr("docmill.console.pages.tasks.Search", partial(Search, max_scanned=40))

    page = await visitor.see("/tasks?name=nadel")

    assert "Not all tasks have been searched yet." in page
    link = re.search(r'href="(/tasks\?name=nadel&amp;before=\d+)"', page)[1]
    assert f'id="task-{oldest}"' in await visitor.see(link.replace("&amp;", "&"))


async def add_tasks(visitor, count: int) -> None:
    """Many tasks quickly, without files."""
    for start in range(0, count, 100):
        await asyncio.gather(
            *(
                visitor.ports.ledger.open(
                    NewTask("local", "local", 1, f"straw-{n}.pdf", f"users/local/raw/1/{n}.pdf", 1, Wishes()),
                    attempt_id=uuid4(),
                )
                for n in range(start, min(start + 100, count))
            )
        )


async def test_new_rows_are_only_those_that_the_filter_lets_in(visitor):
    ids = [await visitor.submit("bill.pdf"), await visitor.submit("report.pdf")]
    query = f"new=1&ids={ids[0]},{ids[1]}"

    assert 1 == (await visitor.see(f"/tasks/rows?name=bill&{query}")).count("<tr id=")
    assert 2 == (await visitor.see(f"/tasks/rows?show=running&{query}")).count("<tr id=")
    assert 0 == (await visitor.see(f"/tasks/rows?show=done&{query}")).count("<tr id=")
    assert 0 == (await visitor.see(f"/tasks/rows?project=9&{query}")).count("<tr id=")


async def test_the_counts_of_the_tabs_can_be_fetched_again(visitor):
    await failed(visitor, "document_broken", "a.pdf")
    await visitor.submit("b.pdf")

    def count(page: str) -> list[tuple[str, str]]:
        return re.findall(r'data-count="(\w+)">(\d+)<', page)

    expected = [("all", "2"), ("attention", "1"), ("running", "1"), ("done", "0")]
    assert expected == count(await visitor.see("/tasks/counts"))
    assert expected == count(await visitor.see("/tasks"))
    assert [] == count(await visitor.see("/tasks?name=a")), "how many match is not known"


async def test_files_are_saved_under_the_names_that_they_came_with(visitor):
    task = await visitor.complete(await visitor.submit("Bericht März.txt", b"# Title\n\ntext"))

    for path, name in (("source", "Bericht März.txt"), ("markdown.md", "Bericht März.md")):
        answer = await visitor.http.get(f"/tasks/{task.id}/artifacts/{path}")
        assert unquote(answer.headers["content-disposition"]).endswith(f"filename*=UTF-8''{name}")
    for page in (f"/tasks/{task.id}", f"/documents/{task.document_id}"):
        assert f'href="/api/v1/etl/tasks/{task.id}/twin"' in await visitor.see(page)
    blob = await visitor.http.get(f"/api/v1/documents/{task.document_id}/blob")
    assert blob.headers["content-disposition"].endswith(".txt")


async def test_a_document_without_page_images_shows_its_text_alone(visitor, tmp_path):
    task = await visitor.complete(await visitor.submit("notes.docx", (SAMPLES / "notes.docx").read_bytes()))

    page = await visitor.see(f"/documents/{task.document_id}")

    assert 'class="split no-image"' in page
    assert 'id="paper"' not in page
    assert "oxes" not in page


async def test_after_a_failed_attempt_the_page_says_which_one_is_next_and_when(visitor):
    task_id = await visitor.submit()
    await visitor.claim(task_id)
    task = await visitor.ports.ledger.get(task_id)
    fault = Fault("storage_failed", "it failed", "mineru")
    await visitor.ports.ledger.decide(
        task_id,
        lambda t, a: machine.on_failure(t, a, fault, retryable=True, crashed=False, next_id=uuid4()),
        attempt_id=task.attempt_id,
    )

    page = await visitor.see(f"/tasks/{task_id}")

    said = re.search(r'<span id="sentence">(.*?)</span>', page)[1]
    assert said.startswith("Attempt 1 did not finish. Waiting for attempt 2. <time")


async def test_the_engine_that_is_chosen_is_the_one_that_is_named(visitor):
    page = await visitor.see("/")

    assert 'name="engine"><option value="local">local (default)</option>' in page, "the first one is chosen"
    assert '<option value="auto">auto (chosen for each document)</option>' in page
    assert '<option value="">' not in page.partition('name="engine"')[2].partition("</select>")[0]


async def test_an_address_that_is_not_there_is_a_page_for_browsers_and_json_for_programs(visitor):
    browser = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8", "Accept-Language": "de"}
    for path in ("/nowhere", "/api/v1/etl/tasks/99", "/api/v1/documents/12345678-1234-5678-1234-567812345678/blob"):
        page = await visitor.http.get(path, headers=browser)
        assert (404, "text/html; charset=utf-8") == (page.status_code, page.headers["content-type"]), path
        assert '<html lang="de"' in page.text
        assert "style-src 'self'" in page.headers["content-security-policy"]
        program = await visitor.http.get(path)
        assert (404, "application/problem+json") == (program.status_code, program.headers["content-type"])
    assert "Die Aufgabe 99 gibt es nicht." in (await visitor.http.get("/api/v1/etl/tasks/99", headers=browser)).text
    posted = await visitor.http.post("/nowhere", headers=browser)
    assert "application/problem+json" == posted.headers["content-type"]


async def test_numbers_and_sizes_are_written_as_the_language_does(visitor):
    await add_tasks(visitor, 1_200)
    task_id = await visitor.submit("big.pdf", b"%PDF-1.7 " + b"x" * 1_234_000)

    for language, count, size in (("en", "1,201", "1.2 MB"), ("de", "1.201", "1,2 MB"), ("zh", "1,201", "1.2 MB")):
        said = {"Accept-Language": language}
        assert f">{count}<" in await visitor.see("/tasks", **said)
        assert size in await visitor.see(f"/tasks/{task_id}", **said)


async def test_a_null_in_a_search_is_no_error(visitor):
    assert "No matching tasks" in await visitor.see("/tasks?name=a%00b")


async def test_filters_combine_and_live_in_the_address(visitor):
    first = await visitor.submit("Rechnung März.pdf")
    second = await visitor.submit("report.pdf")

    both = await visitor.see("/tasks?show=running")
    one = await visitor.see("/tasks?show=running&name=rechnung")
    none = await visitor.see("/tasks?show=running&name=rechnung&project=7")

    assert f"task-{first}" in both
    assert f"task-{second}" in both
    assert f"task-{first}" in one
    assert f"task-{second}" not in one
    assert "No matching tasks" in none


async def test_rows_are_told_again_for_a_page_that_is_open(visitor):
    ids = [await visitor.submit(f"{n}.pdf") for n in range(2)]

    page = await visitor.see(f"/tasks/rows?ids={ids[0]},{ids[1]},999,x")

    assert 2 == page.count("<tr id=")
    assert 0 == (await visitor.see("/tasks/rows?ids=")).count("<tr id=")


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/tasks/999", "task_not_found"),
        ("/tasks/99999999999999999999999", "task_not_found"),
        ("/rules/99999999999999999999999", "rule_not_found"),
        ("/documents/12345678-1234-5678-1234-567812345678", "document_not_found"),
        ("/tasks/999/artifacts/source", "task_not_found"),
    ],
)
async def test_what_is_not_there_has_a_page_with_its_code_and_the_next_step(visitor, path, code):
    page = await visitor.see(path, 404, **{"Accept-Language": "de"})

    assert f"<code>{code}</code>" in page
    assert '<html lang="de"' in page


async def test_names_of_files_are_never_markup(visitor):
    task_id = await visitor.submit("<img src=x onerror=alert(1)>.pdf")

    for path in ("/", "/tasks", f"/tasks/{task_id}"):
        assert "<img src=x" not in await visitor.see(path)


async def test_static_files_are_kept_for_ever_only_under_their_mark(visitor):
    page = await visitor.see("/")
    address = re.search(r'href="(/static/console\.css\?v=[0-9a-f]+)"', page)[1]

    marked = await visitor.http.get(address)
    bare = await visitor.http.get(address.partition("?")[0])

    assert "immutable" in marked.headers["cache-control"]
    assert "no-cache" == bare.headers["cache-control"]
    again = await visitor.http.get("/static/console.js", headers={"If-None-Match": bare.headers["etag"]})
    assert 200 == again.status_code
    assert 404 == (await visitor.http.get("/static/..%2fapp.py")).status_code
