// ---- tables

function table(heads, rows) {
  const cells = (values) => values.map((value) => element("td", {textContent: value, dir: "auto"}));
  return element("div", {className: "scroll", tabIndex: 0}, element("table", {},
    element("thead", {}, element("tr", {}, ...heads.map((head) => element("th", {scope: "col", textContent: head})))),
    element("tbody", {}, ...rows.map(([name, ...values]) => element("tr", {}, element("th", {scope: "row", textContent: name}), ...cells(values))))));
}

const names = data.runs.map(({name}) => name);

function showFacts() {
  for (const [title, rows] of Object.entries(data.facts)) {
    if (rows.length) byId("facts").append(table([title, ...names], rows.map(({name, values}) => [name, ...values])));
  }
}

function showSettings() {
  const rows = (settings) => table(["setting", ...names], settings.map(({name, values}) => [name, ...values]));
  const differing = data.settings.filter(({differs}) => differs);
  if (differing.length) byId("settings").append(element("p", {className: "note", textContent: "The runs differ in:"}), rows(differing));
  if (names.length > 1 && !differing.length) byId("settings").append(element("p", {className: "note", textContent: "The runs have the same settings."}));
  byId("settings").append(element("details", {}, element("summary", {textContent: `all ${data.settings.length} settings`}), rows(data.settings)));
}

function showPairedTests() {
  byId("paired-section").hidden = !data.paired.length;
  if (!data.paired.length) return;
  const bleu = (value) => value.toFixed(2);
  const rows = data.paired.map((test) => {
    const difference = test.bleu - test.baselineBleu;
    const p = test.p === null ? "the same score" : `p = ${test.p.toFixed(4)}${test.p < 0.05 ? "" : ": may be chance"}`;
    return [test.run, `${bleu(test.bleu)} ± ${bleu(test.interval)}`, `${difference < 0 ? "−" : "+"}${bleu(Math.abs(difference))}`, p];
  });
  const {baseline, baselineBleu, sentences, signature} = data.paired[0];
  byId("paired").append(table(["run", "BLEU, 95 % interval", `against ${baseline} (${bleu(baselineBleu)})`, "paired bootstrap"], rows));
  byId("paired-note").textContent =
    `Final translations of the same ${sentences.toLocaleString("en")} validation sentences. p is the probability of such a difference between equal systems. ${signature}`;
}

// ---- translations

const WITHOUT_BLANKS = /\p{sc=Han}|\p{sc=Hiragana}|\p{sc=Katakana}|\p{sc=Thai}|\p{sc=Lao}|\p{sc=Khmer}|\p{sc=Myanmar}/u;

/** Split a text into words and the text between words, also in scripts that write no blanks between words. */
function partsOf(text) {
  if (!WITHOUT_BLANKS.test(text)) return text.split(/(\s+)/);
  return Array.from(new Intl.Segmenter(undefined, {granularity: "word"}).segment(text), ({segment}) => segment);
}

/** Return a translation, with an underline for words that the reference does not have. */
function marked(translation, reference) {
  if (!translation.trim()) return element("span", {className: "note", textContent: "(no word)"});
  const known = new Set(partsOf(reference));
  const line = element("bdi", {dir: "auto", lang: data.languages[1]});
  for (const part of partsOf(translation)) {
    line.append(known.has(part) || !part.trim() ? part : element("span", {className: "other", textContent: part}));
  }
  return line;
}

function row(list, name, content) {
  list.append(element("dt", {textContent: name}), element("dd", {}, content));
}

function showSample({source, reference, final, history}) {
  const list = element("dl", {className: "sample"}), changes = element("dl");
  row(list, "source", element("bdi", {dir: "auto", lang: data.languages[0], textContent: source}));
  row(list, "reference", element("bdi", {dir: "auto", lang: data.languages[1], textContent: reference}));
  names.forEach((name, run) => {
    const label = (what) => names.length > 1 ? `${name}${what && `, ${what}`}` : what || "translation";
    const last = history[run].at(-1);
    if (final[run] !== null) row(list, label(""), marked(final[run], reference));
    else if (last) row(list, label(`update ${last[0].toLocaleString("en")}`), marked(last[1], reference));
    for (const [step, text] of history[run]) row(changes, label(`update ${step.toLocaleString("en")}`), marked(text, reference));
  });
  if (changes.children.length) list.append(element("details", {}, element("summary", {textContent: "greedy translations during training"}), changes));
  return list;
}

// ---- start

for (const {name, state, colour} of data.runs) {
  const swatch = element("span", {className: "swatch"});
  swatch.style.setProperty("--colour", colour);
  byId("runs").append(element("li", {}, swatch, element("bdi", {textContent: name}), element("span", {className: "note", textContent: ` ${state}`})));
}
const panels = data.panels.map(panelFigure);
byId("panels").append(...panels.map(({figure}) => figure));
panels.forEach(({redraw}) => redraw());
byId("time-choice").hidden = !data.panels.some(({curves}) => curves.flat().some(({seconds}) => seconds));
byId("controls").addEventListener("change", () => panels.forEach(({redraw}) => redraw()));
byId("controls").addEventListener("submit", (event) => event.preventDefault());
showFacts();
showPairedTests();
byId("samples-section").hidden = !data.samples.length;
byId("samples").append(...data.samples.map(showSample));
showSettings();

if (data.isTraining) {
  setInterval(() => { if (!document.querySelector("details[open]")) location.reload(); }, 60_000);
}
