// Selects that act at once, buttons that copy, and parts of a page that follow what happens.
import { fragment } from "./live.js";
import { say } from "./times.js";

const REFRESH_MS = 5000;

// Parts without a stream of their own are fetched again with their page, while the tab is visible.
export function refreshes() {
  if (!document.querySelector("[data-refresh]")) return;
  const address = location.pathname;
  setInterval(async () => {
    if (document.hidden) return;
    try {
      const now = await fragment(address);
      for (const old of document.querySelectorAll("[data-refresh]")) {
        const fresh = now.getElementById(old.id);
        if (!fresh || old.contains(document.activeElement)) continue;
        say(fresh);
        old.replaceWith(fresh);
      }
    } catch { /* the next look tries again */ }
  }, REFRESH_MS);
}

export function submits() {
  for (const one of document.querySelectorAll("select[data-submits]")) {
    one.addEventListener("change", () => one.form.requestSubmit());
  }
}

export function copies() {
  for (const button of document.querySelectorAll(".copy")) {
    if (!navigator.clipboard) continue;
    button.hidden = false;
    button.addEventListener("click", async (event) => {
      event.preventDefault();
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
      const before = button.textContent;
      button.textContent = button.dataset.done;
      setTimeout(() => { button.textContent = before; }, 1500);
    });
  }
}
