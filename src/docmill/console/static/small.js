// Selects that act at once, and buttons that copy.
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
