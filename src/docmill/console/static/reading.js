// The page beside its text: what is pointed at or focused on one side lights up on the other.
const NAMED = "[data-asset], [data-block]";

export function reading(split) {
  // Office documents have no image of a page.
  const image = document.querySelector("#paper img");
  const missing = () => {
    const note = document.createElement("p");
    note.className = "faint";
    note.textContent = image.dataset.missing;
    document.getElementById("paper").replaceWith(note);
    split.querySelector(".spots")?.remove();
    split.classList.add("no-image");
  };
  if (image?.complete && !image.naturalWidth) missing();
  else image?.addEventListener("error", missing);

  for (const one of split.querySelectorAll(".markdown img")) {
    const id = one.getAttribute("src").split("/")[4];
    if (!one.closest("[data-asset]")) one.dataset.asset = id;
    one.alt ||= split.querySelector(`.assets [data-asset="${CSS.escape(id)}"] > :nth-child(2)`)?.textContent.trim() ?? id;
  }

  // An asset has one name; an element of the text may stand for several blocks.
  const names = ({ dataset }) => [
    ...(dataset.asset ? [`[data-asset="${CSS.escape(dataset.asset)}"]`] : []),
    ...(dataset.block ?? "").split(" ").filter(Boolean).map((number) => `[data-block~="${CSS.escape(number)}"]`),
  ];
  const twins = (one) => (names(one).length ? split.querySelectorAll(names(one).join()) : []);
  const side = (one) => one.closest("section, article");
  function light(target, other) {
    for (const one of split.querySelectorAll(".lit")) one.classList.remove("lit");
    const named = target?.closest?.(NAMED);
    if (!named) return;
    let shown = false;
    for (const one of twins(named)) {
      one.classList.add("lit");
      if (other && !shown && side(one) !== side(named)) {
        one.scrollIntoView({ block: "nearest", behavior: "auto" });
        shown = true;
      }
    }
  }
  split.addEventListener("pointerover", (event) => light(event.target, false));
  split.addEventListener("pointerleave", () => light(document.activeElement, false));
  split.addEventListener("focusin", (event) => light(event.target, true));
  split.addEventListener("focusout", () => light(null, false));
  split.querySelector(".boxes")?.addEventListener("click", (event) => {
    const box = event.target.closest("a");
    const text = box && [...twins(box)].find((one) => one.closest(".markdown"));
    if (text) {
      event.preventDefault();
      text.focus();
      text.scrollIntoView({ block: "center" });
    }
  });

  // A page has many blocks: Tab stops once on each side, the arrows go on from there.
  const sides = [split.querySelectorAll(".boxes a"), split.querySelectorAll(".markdown :is([data-asset], [data-block])")];
  for (const side of sides.map((found) => [...found])) {
    const stop = (here) => side.forEach((one) => { one.tabIndex = one === here ? 0 : -1; });
    stop(side[0]);
    for (const one of side) {
      one.addEventListener("focus", () => stop(one));
      one.addEventListener("keydown", (event) => {
        if (event.target !== one || event.altKey || event.ctrlKey || event.metaKey) return;
        const at = side.indexOf(one);
        const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: side.length - 1 }[event.key];
        if (next === undefined) return;
        event.preventDefault();
        side[next]?.focus();
      });
    }
  }

  document.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.target.closest("input, select, textarea")) return;
    if (event.target.closest(".markdown, .json") && event.target.scrollWidth > event.target.clientWidth) return;
    const link = document.querySelector(`a[data-key="${event.key}"]`);
    if (link) link.click();
  });
}
