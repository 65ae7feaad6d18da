// Rows of a list as they are now. A row keeps its place whatever happens to it; new ones are only announced.
import { Live, fragment } from "./live.js";
import { say } from "./times.js";

const PAUSE_MS = 400;

export function rows(table) {
  const body = table.tBodies[0];
  const grows = "grows" in table.dataset;
  const short = table.dataset.rows === "short" ? 1 : 0;
  const wanted = new Set();
  const fresh = new Set();
  let after = table.dataset.after;
  let busy = false;

  const row = (id) => body.querySelector(`tr[data-task="${id}"]`);

  async function take() {
    if (busy || !wanted.size) return;
    busy = true;
    const ids = [...wanted].slice(0, 100);
    ids.forEach((id) => wanted.delete(id));
    try {
      const found = await fragment(`/tasks/rows?short=${short}&ids=${ids.join(",")}`);
      for (const now of [...found.querySelectorAll("tr[data-task]")]) place(now);
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
    } else if (Number(task.task_id) > newest) {
      fresh.add(task.task_id);
      announce();
    }
  }

  function announce() {
    const news = document.getElementById("news");
    if (!news) return;
    const link = news.querySelector("a");
    link.textContent = `${fresh.size} ${fresh.size === 1 ? link.dataset.one : link.dataset.many}`;
    news.hidden = false;
  }

  function look() {
    for (const one of body.querySelectorAll('tr[data-final="0"]')) wanted.add(one.dataset.task);
    take();
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
    label.textContent = ticked ? `${ticked} ${label.dataset.some}` : label.dataset.none;
    buttons.forEach((one) => { one.disabled = !ticked; });
  };
  document.addEventListener("change", count);
  count();
}
