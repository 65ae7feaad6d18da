// One stream per visible tab. Hidden: closed. Broken for long: polling, and the page says so.
const POLL_MS = 3000;
const PATIENCE_MS = 5000;

export class Live {
  // address(): where to listen, from the last id on; heard: {event: handler}; look(): ask by hand.
  constructor(address, heard, look) {
    Object.assign(this, { address, heard, look, source: null, timer: 0, grace: 0, over: false });
    document.addEventListener("visibilitychange", () => this.turn());
    addEventListener("pagehide", () => this.close());
    this.turn();
  }

  turn() {
    if (this.over) return;
    if (document.hidden) {
      this.close();
      this.say("paused");
    } else if (!this.source) {
      if (this.was === "paused") this.look();
      this.open();
    }
  }

  open() {
    const source = this.source = new EventSource(this.address());
    this.wait();
    source.onopen = () => {
      this.rest();
      if (this.was === "polling") this.look();
      this.say("live");
    };
    source.onerror = () => {
      this.wait();
      if (source.readyState === EventSource.CLOSED) {
        this.source = null;
        if (!this.over && !document.hidden) setTimeout(() => this.turn(), POLL_MS);
      }
    };
    for (const [name, handler] of Object.entries(this.heard)) source.addEventListener(name, handler);
  }

  // Counted from the first failure on: a stream that keeps failing must not keep us waiting.
  wait() {
    if (!this.grace && !this.timer) this.grace = setTimeout(() => this.poll(), PATIENCE_MS);
  }

  rest() {
    clearTimeout(this.grace);
    clearInterval(this.timer);
    this.grace = this.timer = 0;
  }

  poll() {
    if (this.timer || this.over || document.hidden) return;
    this.grace = 0;
    this.say("polling");
    this.timer = setInterval(() => this.look(), POLL_MS);
    this.look();
  }

  close() {
    this.rest();
    this.source?.close();
    this.source = null;
  }

  end() {
    this.over = true;
    this.close();
    const mark = document.getElementById("live");
    if (mark) mark.hidden = true;
  }

  say(word) {
    this.was = word;
    const mark = document.getElementById("live");
    if (!mark || this.over) return;
    mark.hidden = false;
    mark.className = `live ${word}`;
    mark.querySelector(".word").textContent = mark.dataset[word];
  }
}

export async function fragment(address) {
  const answer = await fetch(address, { headers: { Accept: "text/html" }, redirect: "error" });
  if (!answer.ok) throw new Error(String(answer.status));
  const holder = document.createElement("template");
  holder.innerHTML = await answer.text();
  return holder.content;
}
