"use strict";
// The data is what the report found; every text reaches the page as text, never as markup.
const data = JSON.parse(document.getElementById("data").textContent);
const root = document.documentElement;
window.addEventListener("error", (event) => { root.dataset.error = event.message; });

// ---- small helpers

function make(name, properties, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(properties || {})) {
    if (key === "className") node.className = value; else node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

function seconds(value) {
  if (value === null || value === undefined) return "-";
  const size = Math.abs(value);
  if (size < 0.001) return (value * 1000).toFixed(3) + " ms";
  if (size < 0.0995) return (value * 1000).toFixed(2) + " ms";
  if (size < 1) return (value * 1000).toFixed(0) + " ms";
  return value.toFixed(size < 100 ? 2 : 0) + " s";
}

const endName = (stage) => (stage === null ? "orchestrator" : String(stage));
const placeName = (source, target) =>
  source === target ? "stage " + source + " computes" : "hop " + endName(source) + " \u2192 " + endName(target);

// ---- the rows of the timeline, each with its spans in order

const STATE_COLOR = { renting: "boot", starting: "boot", joining: "boot", fetching: "fetch", loading: "load",
  compiling: "compile", loaded: "ready", linking: "link", ready: "ready", prefill: "prefill", decoding: "decoding", stopping: "stop",
  stopped: "stop", failed: "bad" };
const LANE = 46, FIRST = 34, LEFT = 92, TOP = 8, AXIS = 26;

function stepSpans(stage) {
  const spans = [];
  let last = null;
  for (const [request, sequence, part, arrived, began, done, back, written] of stage.steps) {
    const name = "step " + sequence + (sequence === 0 ? " part " + part + " (prompt)" : "")
      + (data.requests > 1 ? " of answer " + (request + 1) : "");
    if (last !== null && last < arrived) spans.push({ begin: last, end: arrived, color: "wait", text: "waits for " + name });
    spans.push({ begin: arrived, end: began, color: "hop", text: name + ": from node to worker" });
    spans.push({ begin: began, end: done, color: "compute", text: name + ": computes" });
    spans.push({ begin: done, end: written, color: "hop", text: name + ": to node " + seconds(back - done)
      + ", written " + seconds(written - back) });
    last = written;
  }
  return spans;
}

const rows = [{ name: "run", tops: [], spans: data.phases.map((phase) =>
  ({ begin: phase.begin, end: phase.end, color: "boot", text: phase.phase, label: phase.phase })) }];
for (const stage of data.stages) {
  rows.push({
    name: "stage " + stage.stage,
    tops: stage.states.map(([state, begin, end, detail, doing]) => ({ begin, end, label: doing,
      color: doing === state ? STATE_COLOR[state] || "boot" : "boot",
      text: doing + (detail && detail !== doing ? ": " + detail : "") })),
    spans: stepSpans(stage),
  });
}
const memberRow = { name: "members", tops: [], spans: [], marks: data.members.map((member) => ({ at: member.at,
  color: member.state === "alive" ? "good" : member.state === "left" ? "soft" : "bad",
  text: (member.seen_by === null ? "" : "stage " + member.seen_by + " sees: ") + (member.member === null
    ? "orchestrator" : "stage " + member.member) + " " + member.state + (member.reason ? ": " + member.reason : "") })) };
if (memberRow.marks.length) rows.push(memberRow);
for (const row of rows) row.all = [...row.tops, ...row.spans].sort((a, b) => a.begin - b.begin || a.end - b.end);

const END = Math.max(data.end, 0.001);
const view = { begin: 0, end: END, row: 1, chosen: null };
const canvas = document.getElementById("timeline");
const status = document.getElementById("status");
const tip = document.getElementById("tip");
let drawn = 0;

// ---- drawing

const rowTop = (index) => TOP + (index === 0 ? 0 : FIRST + (index - 1) * LANE);
const height = rowTop(rows.length) + AXIS;
const x = (at) => LEFT + (at - view.begin) / (view.end - view.begin) * (canvas.clientWidth - LEFT - 8);
const atX = (px) => view.begin + (px - LEFT) / (canvas.clientWidth - LEFT - 8) * (view.end - view.begin);

function draw() {
  const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth;
  canvas.style.height = height + "px";
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.round(height * ratio);
  const style = getComputedStyle(root), color = (name) => style.getPropertyValue("--" + name).trim();
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = "12px system-ui, sans-serif";
  pen.textBaseline = "middle";
  drawn = 0;
  drawAxis(pen, color, width);
  rows.forEach((row, index) => {
    const top = rowTop(index);
    pen.fillStyle = color(index === view.row ? "ink" : "soft");
    pen.textAlign = "left";
    pen.fillText(row.name, 10, top + (index === 0 ? 13 : 20));
    pen.save();
    pen.beginPath();
    pen.rect(LEFT, 0, width - LEFT - 8, height);
    pen.clip();
    if (index === 0) drawSpans(pen, color, row.spans, top, 24);
    else if (row.marks) drawMarks(pen, color, row.marks, top + 20);
    else { drawSpans(pen, color, row.tops, top + 2, 13); drawSpans(pen, color, row.spans, top + 16, 22); }
    pen.restore();
  });
  pen.save();
  pen.beginPath();
  pen.rect(LEFT, 0, width - LEFT - 8, height);
  pen.clip();
  drawTokens(pen, color);
  drawPath(pen, color);
  pen.restore();
  root.dataset.drawn = String(drawn);
}

function firstAfter(spans, at) {
  let low = 0, high = spans.length;
  while (low < high) { const middle = (low + high) >> 1; if (spans[middle].end < at) low = middle + 1; else high = middle; }
  return low;
}

function drawSpans(pen, color, spans, top, tall) {
  let painted = -1;
  for (let i = firstAfter(spans, view.begin); i < spans.length && spans[i].begin <= view.end; i++) {
    const span = spans[i], left = x(span.begin), right = x(span.end);
    if (right < painted + 0.6 && span !== view.chosen) continue;  // less than a pixel wide and one is there already
    const wide = Math.max(right - left, span.color === "bad" ? 4 : 0.7);
    pen.fillStyle = color(span.color);
    pen.fillRect(left, top, wide, tall);
    painted = Math.max(painted, left + wide);
    drawn++;
    if (span.label && wide > 40) {
      pen.save();
      pen.beginPath();
      pen.rect(left, top, wide - 3, tall);
      pen.clip();
      pen.fillStyle = color("ink");
      pen.textAlign = "left";
      pen.fillText(span.label, Math.max(left, LEFT) + 4, top + tall / 2 + 0.5);
      pen.restore();
    }
    if (span === view.chosen) {
      pen.strokeStyle = color("ink");
      pen.lineWidth = 2;
      pen.strokeRect(left - 1, top - 1, wide + 2, tall + 2);
    }
  }
}

function drawMarks(pen, color, marks, y) {
  for (const mark of marks) {
    const px = x(mark.at);
    pen.fillStyle = color(mark.color);
    pen.beginPath();
    pen.moveTo(px, y - 6); pen.lineTo(px + 5, y); pen.lineTo(px, y + 6); pen.lineTo(px - 5, y);
    pen.fill();
    drawn++;
  }
}

function drawTokens(pen, color) {
  pen.strokeStyle = color("ink");
  pen.lineWidth = 1;
  pen.beginPath();
  let last = -1;
  for (const at of data.tokens) {
    const px = x(at);
    if (px < LEFT || px < last + 1) continue;
    pen.moveTo(px, TOP + 17); pen.lineTo(px, TOP + 24);
    last = px;
  }
  pen.stroke();
}

function drawPath(pen, color) {
  // Where a token is too narrow to follow, a line would only be a stain.
  const narrow = data.token_s && data.token_s / (view.end - view.begin) * canvas.clientWidth < 60;
  pen.strokeStyle = color("path");
  pen.lineWidth = 2;
  pen.lineJoin = "round";
  const middle = (stage) => (stage === null ? rowTop(0) + 24 : rowTop(stage + 1) + 41);
  for (const path of data.paths) {
    const links = path.links;
    if (links[links.length - 1][3] < view.begin || links[0][2] > view.end || (narrow && path.sequence > 0)) continue;
    pen.beginPath();
    pen.moveTo(x(links[0][2]), middle(links[0][0]));
    for (const [, target, , end] of links) pen.lineTo(x(end), middle(target));
    pen.stroke();
  }
}

function drawAxis(pen, color, width) {
  const wanted = (view.end - view.begin) / Math.max(2, (width - LEFT) / 110);
  const power = 10 ** Math.floor(Math.log10(wanted));
  const tick = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= wanted) || 10 * power;
  const digits = Math.max(0, -Math.floor(Math.log10(tick)));
  pen.strokeStyle = color("line");
  pen.fillStyle = color("soft");
  pen.lineWidth = 1;
  pen.textAlign = "center";
  for (let n = Math.ceil(view.begin / tick); n * tick <= view.end; n++) {
    const px = x(n * tick);
    pen.beginPath(); pen.moveTo(px, TOP); pen.lineTo(px, height - AXIS); pen.stroke();
    pen.fillText((n * tick).toFixed(digits) + " s", Math.min(px, width - 24), height - AXIS / 2);
  }
}

// ---- moving

function show(begin, end) {
  const least = Math.max(1e-5, END * 1e-7), most = END * 1.02;
  const span = Math.min(Math.max(end - begin, least), most);
  begin = Math.min(Math.max((begin + end - span) / 2, -0.01 * END), Math.max(END * 1.01 - span, -0.01 * END));
  view.begin = begin;
  view.end = begin + span;
  draw();
}
function zoom(factor, at) {
  const point = at === undefined ? (view.begin + view.end) / 2 : at;
  show(point - (point - view.begin) * factor, point + (view.end - point) * factor);
}
function pan(part) {
  const by = (view.end - view.begin) * part;
  show(view.begin + by, view.end + by);
}
function choose(step) {
  const row = rows[view.row];
  const spans = row.marks ? row.marks.map((m) => ({ begin: m.at, end: m.at, text: m.text })) : row.all;
  if (!spans.length) { status.textContent = row.name + ": nothing is known"; return; }
  let index = view.index === undefined ? firstAfter(spans, view.begin) : view.index + step;
  index = Math.min(Math.max(index, 0), spans.length - 1);
  view.index = index;
  view.chosen = spans[index];
  status.textContent = describe(row, spans[index]);
  if (view.chosen.end < view.begin || view.chosen.begin > view.end) {
    const half = (view.end - view.begin) / 2, middle = (view.chosen.begin + view.chosen.end) / 2;
    show(middle - half, middle + half);
  } else draw();
}
function chooseRow(step) {
  view.row = Math.min(Math.max(view.row + step, 0), rows.length - 1);
  view.index = undefined;
  view.chosen = null;
  status.textContent = rows[view.row].name;
  draw();
}
const describe = (row, span) => row.name + ": " + span.text + ", "
  + (span.end > span.begin ? seconds(span.end - span.begin) + " from " : "at ") + span.begin.toFixed(4) + " s";

const prompt = data.prompt, tokens = data.tokens;
const views = [["Whole run", () => show(0, END)]];
if (data.started !== null) views.push(["Start", () => show(0, data.started)]);
if (prompt !== null && tokens.length) views.push(["Prompt", () => show(prompt, tokens[0])]);
if (tokens.length > 1) {
  views.push(["Tokens", () => show(tokens[0], tokens[tokens.length - 1])]);
  const some = data.paths[data.usual];
  if (some) {
    const begin = some.links[0][2], end = some.links[some.links.length - 1][3];
    views.push(["Two tokens", () => show(begin - (end - begin) * 0.5, end + (end - begin) * 0.5)]);
  }
}
views.push(["Zoom in", () => zoom(0.5)], ["Zoom out", () => zoom(2)]);
document.getElementById("views").append(...views.map(([name, act]) => {
  const button = make("button", { type: "button" }, name);
  button.addEventListener("click", act);
  return button;
}));

canvas.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const acts = { ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2), "+": () => zoom(0.5), "=": () => zoom(0.5),
    "-": () => zoom(2), Home: () => show(0, END), ArrowUp: () => chooseRow(-1), ArrowDown: () => chooseRow(1),
    ",": () => choose(-1), ".": () => choose(1) };
  if (!acts[event.key]) return;
  event.preventDefault();
  acts[event.key]();
});
canvas.addEventListener("wheel", (event) => {
  if (event.ctrlKey || event.metaKey) { event.preventDefault(); zoom(Math.exp(event.deltaY / 200), atX(event.offsetX)); }
  else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) { event.preventDefault(); pan(event.deltaX / 800); }
}, { passive: false });
canvas.addEventListener("dblclick", (event) => zoom(0.4, atX(event.offsetX)));
let dragged = null;
canvas.addEventListener("pointerdown", (event) => { dragged = event.offsetX; canvas.setPointerCapture(event.pointerId); });
canvas.addEventListener("pointerup", () => { dragged = null; });
canvas.addEventListener("pointercancel", () => { dragged = null; });
canvas.addEventListener("pointermove", (event) => {
  if (dragged !== null) { pan((dragged - event.offsetX) / (canvas.clientWidth - LEFT)); dragged = event.offsetX; }
  const text = under(event.offsetX, event.offsetY);
  tip.hidden = !text;
  tip.textContent = text || "";
  tip.style.left = Math.min(event.clientX + 14, window.innerWidth - 350) + "px";
  tip.style.top = event.clientY + 16 + "px";
});
canvas.addEventListener("pointerleave", () => { tip.hidden = true; });

function under(px, py) {
  const index = rows.findIndex((row, i) => py >= rowTop(i) && py < rowTop(i + 1));
  if (index < 0 || px < LEFT) return null;
  const row = rows[index], at = atX(px);
  if (row.marks) {
    const mark = row.marks.find((m) => Math.abs(x(m.at) - px) < 6);
    return mark ? mark.text + " at " + mark.at.toFixed(3) + " s" : null;
  }
  const spans = index > 0 && py < rowTop(index) + 15 ? row.tops : row.spans;
  const span = spans[firstAfter(spans, at)];
  return span && span.begin <= at ? describe(row, span) : null;
}

// ---- everything but the timeline

function table(caption, head, body, options) {
  const text = (options && options.text) || [], long = (options && options.long) || [], bold = (options && options.bold) || [];
  const style = (i) => [text.includes(i) ? "text" : "", long.includes(i) ? "long" : ""].join(" ").trim();
  const cell = (name, value, i) => {
    const node = make(name, style(i) ? { className: style(i) } : {}, String(value));
    if (name === "th") node.setAttribute("scope", "col");
    return node;
  };
  return make("div", { className: "scroll" }, make("table", {},
    make("caption", {}, caption),
    make("thead", {}, make("tr", {}, ...head.map((value, i) => cell("th", value, i)))),
    make("tbody", {}, ...body.map((row, n) =>
      make("tr", bold.includes(n) ? { className: "culprit" } : {}, ...row.map((value, i) => cell("td", value, i)))))));
}

function buildHead() {
  document.getElementById("head").append(
    make("h1", {}, data.title),
    make("p", { className: "under" }, make("span", { className: "how " + data.how.split(" ")[0] }, data.how),
      data.under ? ", " + data.under : ""),
    make("ul", { className: "figures" }, ...data.figures.map(([name, value]) =>
      make("li", {}, make("b", {}, value), make("span", {}, name)))),
    make("dl", { className: "verdict" }, ...data.verdict.flatMap(([name, text]) =>
      [make("dt", {}, name), make("dd", {}, text)])));
}

function buildPath() {
  if (!data.shares.length) return;
  const whole = data.shares.reduce((sum, share) => sum + share.mean_s, 0);
  const inOrder = [...data.shares].sort((a, b) => a.order - b.order);
  const worst = data.culprit;
  document.getElementById("path").append(
    make("h2", {}, "Critical path of a token, " + seconds(whole)),
    make("div", { className: "shares", role: "img", "aria-label": "What a token's time consists of; the table has the figures" },
      ...inOrder.map((share) => {
        const node = make("div", { className: share.source === share.target ? "stage" : "edge" },
          share.source === share.target ? String(share.source) : "\u2192");
        node.style.width = 100 * share.share + "%";
        node.title = placeName(share.source, share.target) + ": " + seconds(share.mean_s);
        return node;
      })),
    make("p", { className: "hint" }, "Blue: computing, by stage. Brown: the hop to the next one."),
    table("Means of all tokens after the first; a hop's parts in the order in which they pass",
      ["where", "share", "mean", "p50", "p99", "worker to node", "write", "wire", "node to worker"],
      data.shares.map((share) => [placeName(share.source, share.target), (100 * share.share).toFixed(1) + " %",
        seconds(share.mean_s), seconds(share.p50_s), seconds(share.p99_s),
        ...["outward", "write", "wire", "inward"].map((part) => share.parts ? seconds(share.parts[part]) : "")]),
      { text: [0], bold: data.shares.map((s, i) => (worst && s.source === worst[0] && s.target === worst[1] ? i : -1)) }));
}

function buildTables() {
  const place = document.getElementById("tables");
  for (const [title, caption, head, body, options] of data.tables) {
    if (body.length) place.append(make("h2", {}, title), table(caption, head, body, options));
  }
}

function buildLegend() {
  const entries = [["compute", "computes"], ["hop", "hands over"], ["wait", "waits"], ["path", "critical path"],
    ["boot", "not loading yet"], ["fetch", "fetching"], ["load", "loading"], ["compile", "compiling"],
    ["link", "opening edges"], ["ready", "ready"], ["prefill", "prefill"], ["decoding", "decoding"], ["bad", "failed"]];
  document.getElementById("legend").append(...entries.map(([color, name]) => {
    const sample = make("i");
    sample.style.background = "var(--" + color + ")";
    return make("li", {}, sample, name);
  }));
}

buildHead();
buildPath();
buildTables();
buildLegend();
draw();
new ResizeObserver(() => draw()).observe(canvas.parentElement);
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
const wanted = views.find(([name]) => "#" + name.toLowerCase().replace(" ", "-") === location.hash);
if (wanted) wanted[1]();
root.dataset.rendered = "1";
