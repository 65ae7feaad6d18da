// Drop files or folders: each is sent on its own, with its own progress, two at a time.
const AT_ONCE = 2;

export function inbox(form) {
  const zone = document.getElementById("zone");
  const list = document.getElementById("sending");
  const waiting = [];
  let running = 0;

  form.addEventListener("submit", (event) => event.preventDefault());
  for (const id of ["files", "folder"]) {
    const picker = document.getElementById(id);
    picker.addEventListener("change", () => {
      add([...picker.files]);
      picker.value = "";
    });
  }
  for (const kind of ["dragenter", "dragover"]) {
    zone.addEventListener(kind, (event) => { event.preventDefault(); zone.classList.add("over"); });
  }
  for (const kind of ["dragleave", "drop"]) zone.addEventListener(kind, () => zone.classList.remove("over"));
  zone.addEventListener("drop", async (event) => {
    event.preventDefault();
    const entries = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
    const files = entries.length ? (await Promise.all(entries.map(within))).flat() : [...event.dataTransfer.files];
    add(files);
  });

  function add(files) {
    for (const file of files) {
      if (file.name.startsWith(".")) continue;
      const line = document.createElement("li");
      const name = document.createElement("span");
      const bar = document.createElement("progress");
      const state = document.createElement("span");
      name.textContent = file.name;
      bar.max = file.size || 1;
      bar.value = 0;
      bar.setAttribute("aria-label", file.name);
      state.className = "state";
      line.append(name, bar, state);
      list.append(line);
      if (file.size > Number(form.dataset.limit)) refuse(line, form.dataset.large);
      else waiting.push([file, line]);
    }
    next();
  }

  function next() {
    while (running < AT_ONCE && waiting.length) {
      running += 1;
      send(...waiting.shift());
    }
  }

  function send(file, line) {
    const [, bar, state] = line.children;
    const fields = new FormData();
    for (const name of ["project_id", "rule_id", "engine"]) {
      if (form.elements[name].value) fields.append(name, form.elements[name].value);
    }
    fields.append("file", file, file.name);
    const request = new XMLHttpRequest();
    request.open("POST", "/api/v1/etl/upload_and_submit");
    request.responseType = "json";
    request.upload.onprogress = (event) => { bar.value = event.loaded; };
    state.textContent = form.dataset.sending;
    const done = () => { running -= 1; next(); };
    request.onload = () => {
      const item = request.response?.items?.[0];
      if (item && item.task_id && !item.error) {
        line.className = "sent";
        bar.value = bar.max;
        state.textContent = form.dataset.sent;
        setTimeout(() => line.remove(), 2500);
      } else {
        refuse(line, item?.error ?? request.response?.detail ?? String(request.status));
      }
      done();
    };
    request.onerror = () => { refuse(line, form.dataset.lost); done(); };
    request.send(fields);
  }

  function refuse(line, why) {
    const state = line.lastElementChild;
    state.className = "state refused";
    state.textContent = `${form.dataset.refused}: ${why}`;
  }
}

async function within(entry) {
  if (entry.isFile) return new Promise((resolve) => entry.file((file) => resolve([file]), () => resolve([])));
  const reader = entry.createReader();
  const found = [];
  for (;;) {
    const some = await new Promise((resolve) => reader.readEntries(resolve, () => resolve([])));
    if (!some.length) break;
    for (const one of some) found.push(...await within(one));
  }
  return found;
}
