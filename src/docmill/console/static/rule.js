// The schema is checked while it is typed; the numbers of lines with a flaw are marked.
const PAUSE_MS = 350;

export function rule(form) {
  const text = document.getElementById("schema");
  const gutter = document.getElementById("gutter");
  const check = document.getElementById("check");
  let timer = 0;
  let asked = 0;

  function number() {
    const bad = new Set([...check.querySelectorAll("[data-line]")].map((one) => Number(one.dataset.line)));
    const count = text.value.split("\n").length;
    gutter.replaceChildren();
    for (let line = 1; line <= count; line += 1) {
      const mark = document.createElement(bad.has(line) ? "b" : "span");
      mark.textContent = line;
      gutter.append(mark, "\n");
    }
    gutter.scrollTop = text.scrollTop;
  }

  async function ask() {
    const turn = asked += 1;
    const fields = new URLSearchParams({ token: form.elements.token.value, json_schema: text.value });
    try {
      const answer = await fetch("/rules/check", { method: "POST", body: fields });
      if (!answer.ok || turn !== asked) return;
      const holder = document.createElement("template");
      holder.innerHTML = await answer.text();
      check.replaceChildren(holder.content);
      text.toggleAttribute("aria-invalid", Boolean(check.querySelector("[data-line]")));
      number();
    } catch { /* saving checks again */ }
  }

  text.addEventListener("input", () => {
    number();
    clearTimeout(timer);
    timer = setTimeout(ask, PAUSE_MS);
  });
  text.addEventListener("scroll", () => { gutter.scrollTop = text.scrollTop; });
  check.addEventListener("click", (event) => {
    const flaw = event.target.closest("[data-line]");
    if (!flaw) return;
    const before = text.value.split("\n").slice(0, Number(flaw.dataset.line) - 1).join("\n").length;
    text.focus();
    text.setSelectionRange(before, before);
  });
  number();
}
