// Rows of a list as they are now. A row keeps its place whatever happens to it; new ones are only announced.
import { Live, fragment } from "./live.js";
import { say } from "./times.js";

const PAUSE_MS = 400;
const COUNT_MS = 1000;
const said = (number) => number.toLocaleString(document.documentElement.lang);

export function rows(table) {
  const body = table.tBodies[0];
  const grows = "grows" in table.dataset;
  const short = table.dataset.rows === "short" ? 1 : 0;
  const wanted = new Set();
  const asked = new Set();
  const fresh = new Set();
  let after = table.dataset.after;
  let busy = false;
  let waiting = 0;

  const row = (id) => body.querySelector(`tr[data-task="${id}"]`);

  async function take() {
    if (busy || !wanted.size) return;
    busy = true;
    const ids = [...wanted].slice(0, 100);
    ids.forEach((id) => wanted.delete(id));
    try {
      const found = await fragment(`/tasks/rows?short=${short}&ids=${ids.join(",")}`);
      for (const now of [...found.querySelectorAll("tr[data-task]")]) place(now);
      later();
    } catch {
      ids.forEach((id) => wanted.add(id));
    }
    setTimeout(() => { busy = false; take(); }, PAUSE_MS);
  }

  function place(now) {
    say(now);
    const old = row(now.dataset.task);
    if (!old) {
      if (grows) {
        body.prepend(now);
        document.getElementById("listing").hidden = false;
        document.getElementById("none").hidden = true;
      }
      return;
    }
    if (Number(old.dataset.version) >= Number(now.dataset.version)) return;
    const ticked = old.querySelector("input:checked");
    const held = old.contains(document.activeElement) ? document.activeElement.getAttribute("href") ?? "input" : null;
    if (ticked) now.querySelector("input").checked = true;
    old.replaceWith(now);
    if (held) now.querySelector(held === "input" ? "input" : `a[href="${held}"]`)?.focus();
  }

  function heard(event) {
    const task = JSON.parse(event.data);
    after = event.lastEventId;
    const known = row(task.task_id);
    if (known || grows) {
      if (!known || Number(known.dataset.version) < task.version) wanted.add(task.task_id);
      take();
    } else {
      if (Number(task.task_id) > newest) asked.add(task.task_id);
      later();
    }
  }

  // New tasks are announced only if the filter of this page lets them in: the server knows.
  function later() {
    waiting ||= setTimeout(async () => {
      waiting = 0;
      const ids = [...asked].slice(0, 100);
      ids.forEach((id) => asked.delete(id));
      try {
        if (ids.length) await announce(ids);
        await count();
      } catch { ids.forEach((id) => asked.add(id)); }
    }, COUNT_MS);
  }

  async function announce(ids) {
    const news = document.getElementById("news");
    if (!news) return;
    const query = new URLSearchParams(location.search);
    query.set("new", "1");
    query.set("ids", ids.join(","));
    const found = new Set([...(await fragment(`/tasks/rows?${query}`)).querySelectorAll("tr[data-task]")]
      .map((one) => one.dataset.task));
    for (const id of ids) fresh[found.has(String(id)) ? "add" : "delete"](String(id));
    const link = news.querySelector("a");
    link.textContent = fresh.size === 1 ? link.dataset.one : link.dataset.many.replace("{n}", said(fresh.size));
    news.hidden = !fresh.size;
  }

  // The numbers beside the tabs, or of the link to all tasks.
  async function count() {
    const found = await fragment(`${table.dataset.counts}${location.search}`);
    for (const now of found.querySelectorAll("[data-count]")) {
      const old = document.querySelector(`#tabs [data-count="${now.dataset.count}"]`);
      if (old) old.replaceWith(now.cloneNode(true));
    }
    const all = document.getElementById("all");
    const total = found.querySelector('[data-count="all"]')?.textContent;
    if (!all || !total) return;
    all.textContent = all.dataset.all.replace("{n}", total);
    all.hidden = total === String(body.rows.length);
  }

  function look() {
    for (const one of body.querySelectorAll('tr[data-final="0"]')) wanted.add(one.dataset.task);
    take();
    later();
  }

  const newest = Math.max(0, ...[...body.rows].map((one) => Number(one.dataset.task)));
  new Live(() => `/api/v1/etl/events?after=${after}`, { task: heard }, look);
  chosen();
}

function chosen() {
  const label = document.getElementById("chosen");
  if (!label) return;
  const buttons = [...document.querySelectorAll("#bulk button")];
  const count = () => {
    const ticked = document.querySelectorAll('input[name="task"][form="bulk"]:checked').length;
    label.textContent = ticked ? label.dataset.some.replace("{n}", said(ticked)) : label.dataset.none;
    buttons.forEach((one) => { one.disabled = !ticked; });
  };
  document.addEventListener("change", count);
  count();
}
