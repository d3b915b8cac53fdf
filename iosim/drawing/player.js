// The player: shows the events of player.py. All schedules stand at the same number of words moved; GPUs stand at the
// same time on the clock of links_page.py.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("play").textContent);
  const stage = document.querySelector("#player .stage");
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const make = (tag, name, parent, text) => {
    const found = document.createElement(tag);
    if (name) found.className = name;
    if (text !== undefined) found.textContent = text;
    if (parent) parent.append(found);
    return found;
  };
  const grouped = (x) => String(x).replace(/\B(?=(\d{3})+$)/g, ",");
  const [KIND, NAME, ROW, ROWS, COLUMN, COLUMNS, WORDS, INSIDE, LINES, TIMES, SENDER] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10];

  // ---- what a run has done after each event
  for (const run of data.runs) {
    let moved = 0;
    run.after = run.clock || run.events.map((event) => (moved += event[WORDS]));
    run.total = run.after[run.after.length - 1] || 0;
  }
  const longest = Math.max(...data.runs.map((run) => run.total));
  const most = Math.max(data.M, ...data.runs.map((run) => run.peak));
  const moments = [...new Set(data.runs.flatMap((run) => run.after))].sort((a, b) => a - b);
  const busiest = Math.max(...data.runs.flatMap((run) => Object.values(sums(run, run.events.length)).flat()));

  function sums(run, count) {
    const found = {};
    for (const name of Object.keys(run.tensors)) found[name] = [0, 0];
    for (let k = 0; k < count; ++k) {
      const event = run.events[k];
      if (event[WORDS]) found[event[NAME]][event[KIND] === "load" ? 0 : 1] += event[WORDS];
    }
    return found;
  }
  // Whether an event shows on the tensors: words move, or a GPU keeps a result.
  const touches = (event) => event[WORDS] > 0 || (data.gpus && event[KIND] === "store");
  const memory = data.gpus ? "memory" : "SRAM";
  // The number of events that have happened when `words` words have moved.
  const reached = (run, words) => {
    let low = 0, high = run.events.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (run.after[middle] <= words) low = middle + 1; else high = middle;
    }
    return low;
  };
  // The tiles of a tensor that an event covers, as indices of its cells.
  const covered = (run, event) => {
    const shape = run.tensors[event[NAME]];
    if (!shape) return [];
    const across = Math.ceil(shape[1] / shape[3]), found = [];
    for (let i = Math.floor(event[ROW] / shape[2]); i * shape[2] < event[ROW] + event[ROWS]; ++i)
      for (let j = Math.floor(event[COLUMN] / shape[3]); j * shape[3] < event[COLUMN] + event[COLUMNS]; ++j)
        if (j < across) found.push(i * across + j);
    return found;
  };
  const range = (name, from, count) => (count === 1 ? `, ${name} ${from}` : `, ${name}s ${from}–${from + count - 1}`);
  const place = (event) =>
    event[NAME] + range("row", event[ROW], event[ROWS]) + ("SP".includes(event[NAME]) || some(event) ? range("column", event[COLUMN], event[COLUMNS]) : "");
  // Whether an event of a GPU is about some of the columns of a tensor, which are its heads.
  const some = (event) => data.gpus && event[NAME] in data.runs[0].tensors && event[COLUMNS] < data.runs[0].tensors[event[NAME]][1];
  const often = (event) => (event[TIMES] > 1 ? ` With the sizes of the question this happens ${grouped(event[TIMES])} times.` : "");
  const told = (event) => {
    if (!event) return "Nothing has moved yet.";
    if (data.gpus && event[KIND] === "load") return "Receive " + place(event) + " from GPU " + event[SENDER] + ": " + grouped(event[WORDS]) + " words.";
    if (data.gpus && event[KIND] === "store") return "Keep " + place(event) + ". Nothing moves.";
    if (data.gpus) return "Compute " + event[KIND].replaceAll("_", " ") + ": " + event[NAME] + ". Nothing moves.";
    if (event[KIND] === "load") return "Load " + place(event) + ": " + event[WORDS] + " words into SRAM." + often(event);
    if (event[KIND] === "store") return "Store " + place(event) + ": " + event[WORDS] + " words to HBM." + often(event);
    return "Compute " + event[KIND].replaceAll("_", " ") + " in SRAM: " + place(event) + ". Nothing moves.";
  };

  // ---- controls
  const controls = make("div", "controls", stage);
  controls.setAttribute("role", "group");
  controls.setAttribute("aria-label", "Player");
  const button = (label, said, act) => {
    const found = make("button", "", controls, label);
    found.type = "button";
    found.setAttribute("aria-label", said);
    found.title = said;
    found.onclick = act;
    return found;
  };
  const toStart = button("❙◀", "To the start (Home)", () => show(0));
  const back = button("◀", "One event back (left arrow)", () => step(-1));
  const playing = button("▶ Play", "Play or pause (space)", () => toggle());
  const forward = button("▶❙", "One event on (right arrow)", () => step(1));
  const slider = make("input", "", controls);
  Object.assign(slider, { type: "range", min: 0, max: longest, value: 0, step: 1 });
  slider.setAttribute("aria-label", data.gpus ? "Words received a GPU" : "Words moved");
  slider.oninput = () => show(Number(slider.value));
  const speed = make("select", "", controls);
  speed.setAttribute("aria-label", "Speed");
  for (const [value, text] of [[0.25, "¼ speed"], [1, "1×"], [4, "4×"], [16, "16×"]]) {
    const option = make("option", "", speed, text);
    option.value = value;
  }
  speed.value = 1;
  const lanes = make("div", "lanes", stage);
  const live = make("p", "quiet", stage);
  live.setAttribute("aria-live", "polite");

  // ---- lanes
  const views = data.runs.map((run) => {
    const lane = make("article", "lane", lanes), view = { run, lane, cells: {}, rows: {}, at: -1 };
    const head = make("h3", "", lane, run.name + " " + run.tiles);
    view.total = make("span", "", head);
    const hbm = make("div", "hbm", lane);
    hbm.setAttribute("aria-label", data.gpus ? "Tensors, in the parts that GPUs have; those of this GPU are framed" : "Tensors in HBM, in tiles, drawn to scale");
    const side = data.runs.length > 2 ? 76 : 110; // pixels of the longest side, so that all tensors stand in a row
    const unit = Math.min(data.gpus ? 5 : 2.25, side / Math.max(...Object.values(run.tensors).map(([rows, columns]) => Math.max(rows, columns)))); // pixels a word
    for (const [name, [rows, columns, high, wide]] of Object.entries(run.tensors)) {
      const mine = new Set((run.here || {})[name]), moves = mine.size > 0 || run.events.some((event) => event[NAME] === name && touches(event));
      const tensor = make("div", "tensor" + (moves ? "" : " never"), hbm);
      const cells = make("div", "cells", tensor), across = Math.ceil(columns / wide);
      const [broad, tall] = [Math.max(2, unit * wide), Math.max(2, unit * high)];
      cells.style.gridTemplateColumns = `repeat(${across}, ${broad}px)`;
      cells.style.justifyContent = "center";
      if (Math.min(broad, tall) < 5) cells.style.gap = "0";
      cells.style.setProperty("--c", (data.colours[name] || ["var(--muted)"])[0]);
      view.cells[name] = [];
      for (let k = 0; k < Math.ceil(rows / high) * across; ++k) {
        const cell = make("div", "cell", make("div", mine.has(k) ? "mine" : "", cells));
        cell.style.width = broad + "px";
        cell.style.height = tall + "px";
        view.cells[name].push(cell);
      }
      make("div", "", tensor, name);
      if (!moves) tensor.title = name + (data.gpus ? " is never in this GPU" : " is never in HBM");
    }
    view.event = make("p", "event", lane);
    view.sram = make("div", "sram", lane);
    view.box = make("div", "box", lane);
    view.box.style.width = (100 * data.M) / most + "%";
    view.occupancy = graph(run, lane);
    const table = make("table", "", lane), header = make("tr", "", make("thead", "", table));
    const counted = data.gpus ? ["received", ""] : ["read", "written"];
    for (const [text, name] of [["tensor", ""], ...counted.map((text) => [text, "n"]), ["", ""]]) make("th", name, header, text);
    const body = make("tbody", "", table);
    const comes = (name) => data.runs.some((run) => run.events.some((event) => event[NAME] === name && event[WORDS]));
    for (const name of Object.keys(run.tensors)) {
      if (data.gpus && !comes(name)) continue;
      const row = make("tr", "", body);
      make("td", "", row, name);
      view.rows[name] = [make("td", "n", row), make("td", "n", row), make("div", "bar", make("td", "wide-bar", row))];
      view.rows[name][2].style.background = (data.colours[name] || ["var(--muted)"])[0];
    }
    view.code = make("div", "code", lane);
    view.code.tabIndex = 0;
    view.code.setAttribute("aria-label", "The text of " + run.name);
    view.code.hidden = !run.text.length;
    view.text = run.text.map((line) => make("div", "", view.code, line || " "));
    return view;
  });

  function graph(run, lane) {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("class", "occupancy");
    svg.setAttribute("viewBox", "0 0 1000 100");
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", `Words in ${memory} against words moved; at most ` + run.peak);
    let path = "M0 100", before = 0;
    run.events.forEach((event, k) => {
      const x = (1000 * (run.after[k] - event[WORDS])) / longest, high = Object.values(event[INSIDE]).reduce((a, b) => a + b, 0);
      path += `L${x.toFixed(1)} ${before.toFixed(1)}L${x.toFixed(1)} ${(before = 100 - (95 * high) / most).toFixed(1)}`;
    });
    path += `L${((1000 * run.total) / longest).toFixed(1)} ${before.toFixed(1)}V100Z`;
    const shape = (tag, attributes) => {
      const found = document.createElementNS(svg.namespaceURI, tag);
      for (const [name, value] of Object.entries(attributes)) found.setAttribute(name, value);
      svg.append(found);
      return found;
    };
    shape("path", { d: path, style: "fill:var(--tile);fill-opacity:.35" });
    const limit = 100 - (95 * data.M) / most;
    shape("line", { x1: 0, x2: 1000, y1: limit, y2: limit, style: "stroke:var(--muted);stroke-width:2;stroke-dasharray:8 6" });
    const cursor = shape("line", { y1: 0, y2: 100, style: "stroke:var(--ink);stroke-width:3" });
    lane.append(svg);
    const note = make("div", "sram", lane, `words in ${memory} against words moved; dashed: ` + (data.gpus ? "the most" : "M"));
    note.setAttribute("aria-hidden", "true");
    return cursor;
  }

  // ---- one moment
  let words = 0, count = null; // `count` events of each run, when one steps by events
  function draw(view, done, flies) {
    const { run } = view, event = run.events[done - 1];
    const totals = sums(run, done), touched = {};
    for (const name of Object.keys(view.cells)) touched[name] = new Set();
    for (let k = 0; k < done; ++k) if (touches(run.events[k])) for (const cell of covered(run, run.events[k])) touched[run.events[k][NAME]].add(cell);
    const here = new Set(event && touches(event) ? covered(run, event) : []);
    for (const [name, cells] of Object.entries(view.cells))
      cells.forEach((cell, k) => {
        const now = event && event[NAME] === name && here.has(k);
        const wanted = "cell" + (now ? " now" + (event[KIND] === "store" ? " stored" : "") : touched[name].has(k) ? " touched" : "");
        if (cell.className !== wanted) cell.className = wanted;
      });
    let moved = 0;
    for (const [name, cells] of Object.entries(view.rows)) {
      const [reads, writes] = totals[name];
      moved += reads + writes;
      cells[0].textContent = grouped(reads);
      cells[1].textContent = data.gpus ? "" : grouped(writes);
      cells[2].style.width = (100 * (reads + writes)) / (2 * busiest) + "%";
    }
    const finished = done === run.events.length;
    view.total.textContent = grouped(moved) + (data.gpus ? " words received" : " words moved") + (finished ? ", done" : "");
    view.lane.dataset.moved = moved;
    view.event.textContent = finished ? "Done: " + told(event) : told(event);
    const inside = event ? event[INSIDE] : {}, held = Object.values(inside).reduce((a, b) => a + b, 0);
    view.sram.textContent = data.gpus ? "Memory: " + held + " words, at most " + data.M
      : "SRAM: " + held + " of M = " + data.M + " words";
    view.box.classList.toggle("over", held > data.M);
    if (held > data.M) make("span", "over-note", view.sram, " — " + (held - data.M) + " words too many: does not fit");
    view.box.replaceChildren();
    for (const [name, size] of Object.entries(inside)) {
      const block = make("div", "block", view.box, name);
      const [fill, ink] = data.colours[name] || ["var(--muted)", "#fff"];
      block.style.cssText = `width:${(100 * size) / data.M}%;background:${fill};color:${ink}`;
      block.title = name + ": " + size + " words";
    }
    const x = (1000 * (done ? run.after[done - 1] : 0)) / longest;
    for (const name of ["x1", "x2"]) view.occupancy.setAttribute(name, x);
    const lit = new Set(event ? event[LINES] : []);
    view.text.forEach((line, k) => line.classList.toggle("lit", lit.has(k)));
    const first = event && event[LINES].length ? view.text[event[LINES][event[LINES].length - 1]] : null;
    if (first) view.code.scrollTop = first.offsetTop - view.code.clientHeight / 2;
    if (flies && event && event[WORDS]) fly(view, event);
    view.at = done;
  }
  function fly(view, event) {
    const far = data.gpus ? views[event[SENDER]] : view;
    const cell = far.cells[event[NAME]] && far.cells[event[NAME]][covered(view.run, event)[0]];
    if (still.matches || !cell || !cell.animate) return;
    const from = cell.getBoundingClientRect(), to = view.box.getBoundingClientRect(), base = view.lane.getBoundingClientRect();
    const tile = make("div", "flying", view.lane), seconds = Math.min(0.45, 0.45 / Number(speed.value));
    tile.style.background = data.colours[event[NAME]][0];
    const at = (box) => `translate(${box.left - base.left}px, ${box.top - base.top}px)`;
    const way = [{ transform: at(from) }, { transform: at(to) }];
    tile.style.left = tile.style.top = "0";
    tile.animate(event[KIND] === "load" ? way : way.reverse(), { duration: 1000 * seconds, easing: "ease-in-out" }).onfinish = () => tile.remove();
  }
  let saved = 0;
  function show(to, flies = false, counts = null) {
    words = Math.max(0, Math.min(longest, to));
    count = counts || data.runs.map((run) => (words ? reached(run, words) : 0));
    views.forEach((view, k) => view.at !== count[k] && draw(view, count[k], flies));
    slider.value = words;
    slider.setAttribute("aria-valuetext", grouped(Math.round(words)) + " of " + grouped(longest) + " words moved" + (data.gpus ? " a GPU" : ""));
    if (!timer) live.textContent = views.map((view) => view.run.name + ": " + view.event.textContent).join(" ");
    if (Date.now() - saved > 300 || !timer) {
      saved = Date.now();
      try { history.replaceState(null, "", "#t=" + words + "&speed=" + speed.value); } catch { /* a page without an address */ }
    }
  }
  // One event of each run that is not ahead of the others; back to the moment before.
  function step(by) {
    pause();
    const now = count.map((done, k) => (done ? data.runs[k].after[done - 1] : 0));
    const next = [...count];
    if (by > 0) {
      const left = count.map((done, k) => (done < data.runs[k].events.length ? now[k] : Infinity)), least = Math.min(...left);
      if (least === Infinity) return;
      left.forEach((at, k) => { if (at === least) ++next[k]; });
    } else {
      const latest = Math.max(...now), last = count.map((done, k) => done && now[k] === latest);
      last.forEach((yes, k) => { if (yes) --next[k]; });
    }
    show(Math.max(...next.map((done, k) => (done ? data.runs[k].after[done - 1] : 0))), by > 0, next);
  }

  // ---- time
  let timer = 0, clock = 0, exact = 0;
  const seconds = data.gpus ? Math.min(30, 2 * moments.length) : 30; // of a whole run
  const rate = () => (longest / seconds) * Number(speed.value); // words a second
  function tick(time) {
    exact += (rate() * Math.min(100, time - clock)) / 1000;
    clock = time;
    const next = moments.filter((moment) => moment > words && moment <= exact).pop();
    if (next !== undefined) show(next, true);
    if (words >= longest) return pause();
    timer = requestAnimationFrame(tick);
  }
  function pause() {
    if (timer) cancelAnimationFrame(timer);
    timer = 0;
    playing.textContent = "▶ Play";
  }
  function toggle() {
    if (timer) { pause(); show(words, false, count); return; }
    if (words >= longest) show(0);
    playing.textContent = "❚❚ Pause";
    exact = words;
    clock = performance.now();
    timer = requestAnimationFrame(tick);
  }
  document.addEventListener("keydown", (key) => {
    if (key.ctrlKey || key.metaKey || key.altKey) return;
    const on = document.activeElement, here = !on || on === document.body || stage.contains(on);
    if (!here || on === slider || on === speed || (on && on.classList.contains("code"))) return;
    const act = { ArrowRight: () => step(1), ArrowLeft: () => step(-1), Home: () => show(0), End: () => show(longest) }[key.key];
    if (act) { act(); key.preventDefault(); }
    else if (key.key === " " && !(on && on.tagName === "BUTTON")) { toggle(); key.preventDefault(); }
  });
  const state = new URLSearchParams(location.hash.slice(1));
  if (["0.25", "1", "4", "16"].includes(state.get("speed"))) speed.value = state.get("speed");
  show(state.get("t") === "end" ? longest : Number(state.get("t")) || 0);
  if (state.get("play") === "1") toggle();
  stage.dataset.ready = "yes";
})();
