// What makes the pages live. Each page works without it; nothing here is needed to read, cancel or retry.
import { times } from "./times.js";
import { copies, refreshes, submits } from "./small.js";
import { rows } from "./rows.js";
import { task } from "./task.js";
import { inbox } from "./inbox.js";
import { reading } from "./reading.js";
import { rule } from "./rule.js";

times();
submits();
copies();
refreshes();
for (const [selector, begin] of [
  ["table[data-rows]", rows],
  ["#task", task],
  ["#upload", inbox],
  ["#split", reading],
  ["#rule", rule],
]) {
  const found = document.querySelector(selector);
  if (found) begin(found);
}
