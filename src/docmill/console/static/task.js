// A task's page while it runs: every line of its log redraws what the server says of it.
import { Live, fragment } from "./live.js";
import { say } from "./times.js";

const PAUSE_MS = 250;
const LOOK_MS = 2000;
const LOOKS = 15;

// Messages about the end of a task leave after it: look for a while how they fare.
function follow(place, looks = LOOKS) {
  if (!looks || !place.querySelector("[data-pending]")) return;
  setTimeout(async () => {
    const held = place.contains(document.activeElement) && document.activeElement !== document.body;
    if (!document.hidden && !held) {
      try {
        place.replaceChildren(await fragment(`/tasks/${place.dataset.task}/live`));
        say(place);
      } catch { /* the next look tries again */ }
    }
    follow(place, looks - 1);
  }, LOOK_MS);
}

export function task(place) {
  if (place.dataset.final === "1") return follow(place);
  let seq = place.dataset.seq;
  let drawing = false;
  let again = false;
  let ended = false;

  async function draw() {
    if (drawing) {
      again = true;
      return;
    }
    drawing = true;
    again = false;
    try {
      const now = await fragment(`/tasks/${place.dataset.task}/live`);
      const held = document.activeElement?.closest("form")?.getAttribute("action");
      place.replaceChildren(now);
      say(place);
      if (held) place.querySelector(`form[action="${held}"] button`)?.focus();
      if (!ended) live.say(live.was ?? "live");
    } catch { /* the next line of the log, or the next look, tries again */ }
    setTimeout(() => {
      drawing = false;
      if (again) draw();
      else if (ended) {
        live.end();
        follow(place);
      }
    }, PAUSE_MS);
  }

  const heard = (event) => {
    seq = event.lastEventId || seq;
    draw();
  };
  const kinds = ["submitted", "started", "progress", "handed_over", "stage_succeeded", "completed", "failed",
    "retry_scheduled", "cancelled", "retried", "given_back", "worker_lost", "isolated", "worker_error", "mounted",
    "twin_drift"];
  const live = new Live(
    () => `/api/v1/etl/tasks/${place.dataset.task}/events?after=${seq}`,
    {
      ...Object.fromEntries(kinds.map((kind) => [kind, heard])),
      end: () => { ended = true; live.over = true; live.close(); draw(); },
    },
    draw,
  );
}
