"""Every page, in every language, under a strict policy; and what plain forms can do."""

import re

import pytest

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
    assert "Cancelled. Nothing more happens" in await visitor.see(answer.headers["location"])

    await visitor.fill(page, f"{page}/retry", from_stage="mineru")
    assert "Waiting for a free worker" in await visitor.see(page)

    await visitor.claim(task_id)
    refused = await visitor.fill(page, f"{page}/cancel")
    assert 409 == refused.status_code
    assert "task_running" in refused.text
    await visitor.fill(page, f"{page}/cancel", force="1")
    assert "Cancelled by force" in await visitor.see(page)


async def test_many_tasks_are_changed_at_once_and_refusals_are_counted(visitor):
    ids = [await visitor.submit(f"{n}.pdf") for n in range(3)]
    await visitor.claim(ids[0])

    answer = await visitor.fill("/tasks", "/tasks/bulk", action="cancel", task=[str(one) for one in ids])

    assert "/tasks?done=2&refused=1" == answer.headers["location"]
    assert "2 tasks changed." in await visitor.see(answer.headers["location"])


async def test_equal_failures_are_grouped(visitor):
    for _ in range(2):
        task_id = await visitor.submit("x.pdf", b"")
        await visitor.claim(task_id)
        await visitor.fill(f"/tasks/{task_id}", f"/tasks/{task_id}/cancel", force="1")

    assert "failed the same way" not in await visitor.see("/tasks?show=attention")


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
    assert "No task matches" in none


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
