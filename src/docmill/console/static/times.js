// Moments in the reader's own words: "3 minutes ago", and the exact time when the pointer rests on it.
const STEPS = [["second", 60], ["minute", 60], ["hour", 24], ["day", 30], ["month", 12], ["year", Infinity]];
const lang = document.documentElement.lang;
const relative = new Intl.RelativeTimeFormat(lang, { numeric: "auto", style: "short" });
const exact = new Intl.DateTimeFormat(lang, { dateStyle: "medium", timeStyle: "medium" });

function said(moment) {
  let left = Math.min(0, (moment - Date.now()) / 1000);
  if (moment > Date.now() + 1000) left = (moment - Date.now()) / 1000;
  for (const [unit, size] of STEPS) {
    if (Math.abs(left) < size) return relative.format(Math.round(left), unit);
    left /= size;
  }
  return "";
}

export function say(root = document) {
  for (const one of root.querySelectorAll("time[datetime]")) {
    const moment = new Date(one.dateTime);
    one.textContent = said(moment);
    one.title = exact.format(moment);
  }
}

export function times() {
  say();
  setInterval(() => document.hidden || say(), 15000);
}
