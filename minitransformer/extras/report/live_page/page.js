// ---- the page: what the user has chosen, and what is computed of it

const model = new Model(data.model), sourceTokenizer = new Tokenizer(data.model.source);
const targetTokenizer = data.model.target ? new Tokenizer(data.model.target) : sourceTokenizer;
const SLIDERS = {beam: 4, alpha: data.model.config.alpha, temperature: 1};
const MOST_LISTED = 6; // translations
const TABS = {search: "Search", attention: "Attention", numbers: "Numbers"};

/** `found` is of the last search; `chosen` is the translation that is shown, `selected` the hypothesis that is explained. */
const state = {pieces: [], found: {translations: [], steps: []}, chosen: 0, selected: null, nShown: 0, tab: "search"};
let viewed = null; // the numbers of the chosen translation; null until a view needs them
let timer = null; // of the animation, or of the search after typing

const shownToken = (id) => id === END ? data.marks[1] : shownPieces(["x", targetTokenizer.pieces[id]])[1];
const slider = (name) => Number(byId(name).value);

/** Translate the sentence, and show all of the search. */
function search() {
  stop();
  const {normalisation} = model.config, begin = performance.now(), pieces = sourceTokenizer.encode(byId("sentence").value);
  const settings = {beam: slider("beam"), alpha: slider("alpha"), temperature: slider("temperature"), normalisation};
  state.pieces = pieces.slice(0, data.model.longest);
  const found = translate(model, targetTokenizer, state.pieces.map(({id}) => id), settings);
  const ms = performance.now() - begin, unknown = pieces.filter(({id}) => id === UNKNOWN).map(({piece}) => piece.replaceAll(BLANK, " ").trim());
  const notes = [`${state.pieces.length} pieces, ${found.steps.length} steps, ${ms.toFixed(0)} ms.`];
  if (unknown.length) notes.push(`The vocabulary lacks “${unknown.join("”, “")}”.`);
  if (pieces.length > state.pieces.length) notes.push(`Only the first ${state.pieces.length} pieces are translated.`);
  if (model.off.size) notes.push(`Switched off: ${[...model.off].map((name) => name.replace("_attention", "").replaceAll(/\d+/g, (n) => Number(n) + 1).replaceAll(".", " ")).join(", ")}.`);
  byId("found").textContent = state.pieces.length ? notes.join(" ") : "";
  change({found, chosen: 0, selected: found.translations[0] ?? null, nShown: found.steps.length});
}

function change(changes) {
  if ("chosen" in changes) viewed = null;
  Object.assign(state, changes);
  draw();
}

function draw() {
  const {translations, steps} = state.found, chosen = translations[state.chosen];
  byId("translation").textContent = chosen?.text ?? "";
  for (const input of byId("tabs").querySelectorAll("input")) input.checked = input.value === state.tab;
  for (const name of Object.keys(TABS)) byId(name).hidden = name !== state.tab || !chosen;
  for (const name of Object.keys(SLIDERS)) byId(`${name}-value`).textContent = Number(slider(name).toFixed(2));
  for (const button of byId("switches").querySelectorAll("button")) button.ariaPressed = String(!model.off.has(button.value));
  if (!chosen) return;
  if (state.tab === "search") drawSearch(translations, steps);
  else {
    viewed ??= viewData(model, targetTokenizer, state.pieces, chosen.ids);
    if (state.tab === "attention") views.attention_page(viewed.attention);
    else views.sentence_page(viewed);
  }
}

function drawSearch(translations, steps) {
  replaceChildren(byId("best"), translations.slice(0, MOST_LISTED).map((one, i) => {
    const text = element("span", {dir: "auto", textContent: one.text || "(no word)"});
    const button = element("button", {type: "button", ariaPressed: String(i === state.chosen)}, text);
    button.addEventListener("click", () => change({chosen: i, selected: one, nShown: steps.length}));
    const numbers = [one.logP, one.penalty, one.score].map((x) => element("td", {textContent: fixed(x)}));
    return element("tr", {}, element("td", {}, button), ...numbers);
  }));
  byId("tree-note").textContent = `Each step continues the best hypotheses, at most ${slider("beam")}. Wider lines: more probable words. Dashed: given up.`;
  byId("step").max = steps.length;
  byId("step").value = state.nShown;
  byId("step-value").textContent = `${state.nShown} of ${steps.length}`;
  drawTree(steps, state.nShown, state.selected);
}

function openTab(tab) {
  history.replaceState(null, "", "#"); // the views of the other tabs write what they show
  change({tab});
}

// ---- the controls

function buildControls() {
  byId("alpha").max = Math.max(3, SLIDERS.alpha);
  setSliders();
  for (const name of Object.keys(SLIDERS)) byId(name).addEventListener("input", searchSoon);
  byId("sentence").addEventListener("input", searchSoon);
  byId("reset").addEventListener("click", () => {
    model.off.clear();
    setSliders();
    search();
  });
  byId("examples").append(...data.sentences.map((sentence) => {
    const button = element("button", {type: "button", textContent: sentence});
    button.addEventListener("click", () => { byId("sentence").value = sentence; search(); });
    return button;
  }));
  byId("tabs").append(...Object.entries(TABS).map(([tab, name]) => choice("radio", "tab", tab, name, () => openTab(tab))));
  for (const [stack, depth] of Object.entries(model.depth)) {
    byId("switches").append(...range(depth).map((i) => layerSwitches(stack, i)));
  }
  moveWithArrows(byId("switches"), 1, () => {});
  byId("play").addEventListener("click", () => { if (timer) { stop(); draw(); } else play(); });
  byId("step").addEventListener("input", () => { stop(); change({nShown: Number(byId("step").value)}); });
  byId("tree").addEventListener("keydown", (event) => {
    const next = state.selected && !event.altKey && !event.ctrlKey && !event.metaKey && neighbour(state.found.steps, state.selected, event.key);
    if (!next || next.step > state.nShown) return;
    event.preventDefault();
    change({selected: next});
  });
}

function setSliders() {
  for (const [name, value] of Object.entries(SLIDERS)) byId(name).value = value;
}

/** Make a card with a switch for a layer and for each head of its attention. */
function layerSwitches(stack, i) {
  const rows = Object.entries(stack === "encoder" ? {self_attention: "self"} : {self_attention: "self", source_attention: "source"});
  const press = (value, text, label) => {
    const button = element("button", {type: "button", value, textContent: text, ariaLabel: label});
    button.addEventListener("click", () => { if (!model.off.delete(value)) model.off.add(value); search(); });
    return button;
  };
  const card = element("div", {className: `layer ${stack}`, role: "group", ariaLabel: `${stack} ${i + 1}`}, press(`${stack}.${i}`, `${stack} ${i + 1}`, `layer ${stack} ${i + 1}`));
  for (const [sublayer, name] of rows) {
    const heads = data.colours.map((colour, head) => {
      const button = press(`${stack}.${i}.${sublayer}.${head}`, head + 1, `head ${head + 1} of ${name}-attention, ${stack} ${i + 1}`);
      button.style.setProperty("--colour", colour);
      return button;
    });
    card.append(element("span", {className: "note", textContent: name}), element("div", {className: "row"}, ...heads));
  }
  return card;
}

/** Search soon, but not for every letter of a fast typist. */
function searchSoon() {
  stop();
  timer = setTimeout(search, 80);
}

/** Show the search from its beginning, a step each half second. */
function play() {
  let nShown = 0;
  const next = () => {
    change({nShown: nShown++});
    byId("tree").scrollLeft = byId("tree").scrollWidth;
    if (nShown > state.found.steps.length) stop();
    else timer = setTimeout(next, 500);
  };
  byId("play").textContent = "Stop";
  next();
}

function stop() {
  clearTimeout(timer);
  timer = null;
  byId("play").textContent = "Play";
}

const given = new URLSearchParams(location.hash.slice(1));
state.tab = given.has("kind") ? "attention" : given.has("step") ? "numbers" : "search"; // the views write these addresses
byId("sentence").value = data.sentences[0] ?? "";
[byId("sentence").lang, byId("translation").lang] = data.languages;
byId("origin").textContent = `Model: ${data.origin}. Everything is computed on this device; nothing is loaded or sent.`;
byId("switch-box").open = matchMedia("(min-width: 861px)").matches; // a narrow page begins with the translation
buildControls();
search();
