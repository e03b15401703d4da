// ---- the page: a run, the run before, and what is drawn of them

const PARTS = { // of the model, by the beginning of their parameters' names
  "source_embedding.weight": "embedding", "encoder.layers.0.self_attention": "encoder: self-attention", "encoder.layers.0.feed_forward": "encoder: feed-forward",
  "decoder.layers.0.self_attention": "decoder: self-attention", "decoder.layers.0.source_attention": "decoder: source attention",
  "decoder.layers.0.feed_forward": "decoder: feed-forward",
};
const KINDS = { // of attention: title, and whether rows and columns are the decoder's
  "encoder.layers.0.self_attention": ["Encoder", false, false], "decoder.layers.0.self_attention": ["Decoder", true, true],
  "decoder.layers.0.source_attention": ["Decoder to encoder", true, false],
};
const START_SIGN = "⊢", END_SIGN = "⊣", SIGNS = ["?", START_SIGN, END_SIGN, ...range(10).map(String)]; // by id
const MOST_UPDATES = 2000; // then the page pauses
const MOST_POINTS = 500; // of a curve
const SHARE_EVERY = 25, DRAW_EVERY = 200, SLICE = 30; // updates; milliseconds

/** A curve of `plot.js`. When it is full, every other point goes. */
class Curve {
  steps = [];
  values = [];
  add(step, value) {
    this.steps.push(step);
    this.values.push(value);
    if (this.steps.length > MOST_POINTS) for (const list of ["steps", "values"]) this[list] = this[list].filter((_, i) => i % 2 === 0);
  }
}

let run, former = null, position = 0;
let timer = null, drawnAt = 0;

/** Begin a run; the last one is kept for comparison if it has made an update. */
function begin() {
  const off = [...byId("switches").querySelectorAll("input:not(:checked)")].map(({value}) => value);
  if (run?.learner.step) former = run;
  const curves = Object.fromEntries(["loss", "share", "rate", ...Object.keys(PARTS)].map((name) => [name, new Curve()]));
  run = {learner: new Learner(data, off, Math.floor(Number(byId("seed").value))), name: off.length ? `without ${off.join(", ")}` : "complete", curves, ms: 0};
  run.curves.share.add(0, 100 * (run.share = run.learner.share()));
  draw();
}

function update() {
  const {learner, curves} = run, begun = performance.now(), {loss, rate, norms} = learner.update(), {step} = learner;
  Object.assign(run, {loss, ms: run.ms + performance.now() - begun});
  for (const [name, value] of Object.entries({loss, rate, ...norms})) curves[name].add(step, value);
  if (step % SHARE_EVERY === 0) curves.share.add(step, 100 * (run.share = learner.share()));
}

/** Make updates for a moment, then let the browser answer its user. */
function go() {
  const end = performance.now() + SLICE;
  do update(); while (performance.now() < end && run.learner.step % MOST_UPDATES);
  if (performance.now() - drawnAt > DRAW_EVERY) draw();
  if (run.learner.step % MOST_UPDATES) timer = setTimeout(go);
  else pause();
}

function pause() {
  clearTimeout(timer);
  timer = null;
  draw();
}

function start() {
  timer = setTimeout(go);
  draw();
}

// ---- drawing

const N_LISTED = HELD_OUT.flat().length;

function draw() {
  const {learner, loss, ms, share} = run;
  byId("run").textContent = timer ? "Pause" : "Run";
  byId("once").disabled = timer !== null;
  byId("status").textContent = `Update ${learner.step.toLocaleString("en")}, ${run.name}` + (learner.step ? `: loss ${loss.toFixed(3)}, ${(ms / learner.step).toFixed(0)} ms per update` : "");
  byId("right").textContent = `${Math.round(share * N_LISTED)} of ${N_LISTED}`;
  byId("share").style.setProperty("--p", share);
  drawCurves();
  drawLine();
  drawnAt = performance.now();
}

data.runs = [
  {name: "the run before", colour: "color-mix(in srgb, var(--faint) 55%, var(--panel))"}, {name: "this run", colour: "var(--accent)"},
  ...Object.values(PARTS).map((name, i) => ({name, colour: data.colours[i]})),
];
const panels = [
  {title: "Loss", unit: "nats per token", fromZero: true, names: ["training"], scale: "linear", key: "loss", note: "With label smoothing it cannot fall below the entropy of the target, 0.57."},
  {title: "Right lines", unit: "% of unseen", fromZero: true, to: 100, names: ["share"], scale: "linear", key: "share", note: "Written digit by digit, without the answer."},
  {title: "Learning rate", unit: "", fromZero: true, names: ["rate"], scale: "linear", key: "rate", note: ""},
  {title: "Gradient norm", unit: "by part", fromZero: false, names: ["norm"], scale: "log", note: ""},
].map((panel) => ({panel, ...panelFigure(panel)}));

function drawCurves() {
  for (const {panel, figure, redraw} of panels) {
    panel.curves = panel.key ? [former, run].map((each) => each ? [each.curves[panel.key]] : []) : [[], [], ...Object.keys(PARTS).map((part) => [run.curves[part]])];
    if (panel.key && former) figure.querySelector(".key").textContent = `grey: the run before, ${former.name}`;
    redraw();
  }
}

function drawLine() {
  const text = byId("line").value.replace(/\D/g, ""), line = Array.from(text, (digit) => ZERO + Number(digit)), answer = reversed(line);
  const [written] = line.length ? run.learner.write([line]) : [[]], end = written.indexOf(END);
  byId("written").replaceChildren(...(end < 0 ? written : written.slice(0, end)).map((id, i) => (
    element("span", {className: id === answer[i] ? "" : "wrong", textContent: SIGNS[id]}))));
  if (!line.length) return;
  const {p, target} = run.learner.loss([], [line], [answer]);
  if (text !== built) buildInside(built = text, answer);
  byId("attention").classList.toggle("masked", !run.learner.off.has("mask"));
  for (const name of Object.keys(KINDS)) {
    byId(name).querySelectorAll("td").forEach((cell, i) => cell.style.setProperty("--weight", run.learner.attentions[name][i].toFixed(3)));
  }
  byId("after").textContent = `after ${[START, ...answer].slice(0, position + 1).map((id) => SIGNS[id]).join(" ")}`;
  SIGNS.forEach((_, id) => {
    const row = byId("bars").children[id], i = position * SIGNS.length + id;
    row.style.setProperty("--p", p[i]);
    row.style.setProperty("--q", target(i));
    row.children[2].textContent = p[i].toFixed(3);
    row.children[3].textContent = target(i).toFixed(3);
  });
}

let built = ""; // the line that the tables are for

function buildInside(text, answer) {
  const source = [...text, END_SIGN], inputs = [START, ...answer].map((id) => SIGNS[id]);
  byId("attention").replaceChildren(...Object.entries(KINDS).map(([id, [title, rows, columns]]) => (
    element("figure", {}, element("figcaption", {}, element("b", {textContent: title})),
      element("div", {id, className: "heads"}, ...range(data.model.n_heads).map((head) => weightTable(title, head, rows ? inputs : source, columns ? inputs : source)))))));
  position = Math.min(position, answer.length);
  byId("positions").replaceChildren(...[...answer, END].map((id, i) => {
    const made = choice("radio", "position", i, SIGNS[id], () => { position = i; drawLine(); });
    made.firstChild.checked = i === position;
    return made;
  }));
}

function weightTable(title, head, rows, columns) {
  const isMasked = rows === columns && title === "Decoder";
  const made = element("table", {ariaLabel: `${title}, head ${head + 1}`},
    element("thead", {}, element("tr", {}, element("th"), ...columns.map((sign) => element("th", {scope: "col", textContent: sign})))),
    element("tbody", {}, ...rows.map((sign, i) => element("tr", {}, element("th", {scope: "row", textContent: sign}),
      ...columns.map((_, j) => element("td", {className: isMasked && j > i ? "later" : ""}))))));
  made.style.setProperty("--colour", data.colours[head]);
  return made;
}

// ---- start

byId("panels").append(...panels.map(({figure}) => figure));
panels.at(-1).figure.querySelector(".note").append(...data.runs.slice(2).map(({name, colour}) => {
  const swatch = element("span", {className: "swatch"});
  swatch.style.setProperty("--colour", colour);
  return element("span", {}, swatch, name);
}));
byId("bars").append(...SIGNS.map((sign) => element("tr", {}, element("th", {scope: "row", textContent: sign}), element("td", {}, element("span", {className: "bar"})), element("td"), element("td"))));
byId("run").addEventListener("click", () => { if (timer) pause(); else start(); });
byId("once").addEventListener("click", () => { update(); draw(); });
byId("reset").addEventListener("click", begin);
byId("seed").addEventListener("change", begin);
byId("switches").addEventListener("change", () => { begin(); if (!timer) start(); });
byId("line").addEventListener("input", drawLine);
begin();
if (!matchMedia("(prefers-reduced-motion: reduce)").matches) start();
