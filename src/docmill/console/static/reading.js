// The page beside its text: what is pointed at or focused on one side lights up on the other.
export function reading(split) {
  const paper = document.getElementById("paper");
  const image = paper.querySelector("img");
  const missing = () => {
    paper.classList.add("missing");
    const note = document.createElement("p");
    note.className = "missing-note";
    note.textContent = image.dataset.missing;
    paper.append(note);
  };
  if (image.complete && !image.naturalWidth) missing();
  else image.addEventListener("error", missing);

  for (const one of split.querySelectorAll(".markdown img")) {
    const id = one.getAttribute("src").split("/")[4];
    if (!one.closest("[data-asset]")) one.dataset.asset = id;
  }
  for (const one of split.querySelectorAll(".markdown [data-asset]")) one.tabIndex = 0;

  const twins = (id) => split.querySelectorAll(`[data-asset="${CSS.escape(id)}"]`);
  function light(target, other) {
    for (const one of split.querySelectorAll(".lit")) one.classList.remove("lit");
    const asset = target?.closest?.("[data-asset]");
    if (!asset) return;
    for (const one of twins(asset.dataset.asset)) {
      one.classList.add("lit");
      if (other && one.closest("section, article") !== asset.closest("section, article")) {
        one.scrollIntoView({ block: "nearest", behavior: "auto" });
      }
    }
  }
  split.addEventListener("pointerover", (event) => light(event.target, false));
  split.addEventListener("pointerleave", () => light(document.activeElement, false));
  split.addEventListener("focusin", (event) => light(event.target, true));
  split.addEventListener("focusout", () => light(null, false));
  split.querySelector(".boxes").addEventListener("click", (event) => {
    const box = event.target.closest("a[data-asset]");
    const text = box && split.querySelector(`.markdown [data-asset="${CSS.escape(box.dataset.asset)}"]`);
    if (text) {
      event.preventDefault();
      text.focus();
      text.scrollIntoView({ block: "center" });
    }
  });

  document.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.target.closest("input, select, textarea")) return;
    if (event.target.closest(".markdown, .json") && event.target.scrollWidth > event.target.clientWidth) return;
    const link = document.querySelector(`a[data-key="${event.key}"]`);
    if (link) link.click();
  });
}
