// ---- making elements

function choice(type, name, value, text, onChange, colour) {
  const input = element("input", {type, name, value});
  input.addEventListener("change", onChange);
  const label = element("span", {className: colour ? "head" : "", textContent: text});
  if (colour) label.style.setProperty("--colour", colour);
  return element("label", {className: "choice"}, input, label);
}

function buildControls() {
  for (const kind of Object.keys(KIND_NAMES)) {
    byId("kinds").append(choice("radio", "kind", kind, KIND_NAMES[kind], () => change({kind, word: null})));
  }
  for (const layer of range(deepest)) {
    byId("layers").append(choice("radio", "layer", layer, String(layer + 1), () => change({layer})));
  }
  for (const head of range(nHeads)) {
    byId("heads").append(choice("checkbox", "head", head, String(head + 1), () => {
      if (!state.heads.delete(head)) state.heads.add(head);
      change({});
    }, data.colours[head]));
  }
  byId("all-heads").addEventListener("click", () => change({heads: new Set(range(nHeads))}));
  byId("no-heads").addEventListener("click", () => change({heads: new Set()}));
  byId("end").addEventListener("change", () => change({end: byId("end").checked, word: null}));
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
}

/** Make a group of buttons one stop of the Tab key; arrows, Home and End move within it. */
function moveWithArrows(group, columns, onMove) {
  group.addEventListener("focusin", ({target}) => {
    for (const button of group.querySelectorAll("button")) button.tabIndex = button === target ? 0 : -1;
  });
  group.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return; // the browser's shortcuts, such as Alt and an arrow to go back
    const buttons = [...group.querySelectorAll("button")];
    const here = buttons.indexOf(document.activeElement), steps = {
      ArrowDown: columns(), ArrowUp: -columns(), ArrowRight: 1, ArrowLeft: -1, Home: -here, End: buttons.length - 1 - here,
    };
    const there = buttons[here + steps[event.key]];
    if (here < 0 || !there) return;
    event.preventDefault();
    there.focus();
    onMove(here + steps[event.key]);
  });
}

// ---- drawing

function change(changes) {
  Object.assign(state, changes);
  chooseExistingLayer();
  hovered = null;
  writeAddress();
  draw();
}

function draw() {
  const nLayers = data.kinds[state.kind].layers;
  for (const input of byId("controls").querySelectorAll("input")) {
    if (input.name === "kind") input.checked = input.value === state.kind;
    if (input.name === "layer") {
      input.checked = Number(input.value) === state.layer;
      input.disabled = Number(input.value) >= nLayers;
    }
    if (input.name === "head") input.checked = state.heads.has(Number(input.value));
  }
  byId("end").checked = state.end;
  byId("end-choice").hidden = state.kind === "decoder";
  const isTable = state.kind === "alignment";
  byId("figure-title").textContent = isTable
    ? `Alignment, layer ${state.layer + 1}` : `${KIND_NAMES[state.kind]} attention, layer ${state.layer + 1}`;
  byId("figure-note").textContent = NOTES[state.kind];
  byId("lines").hidden = isTable;
  byId("alignment").hidden = !isTable || !state.heads.size;
  byId("reading").hidden = isTable && state.heads.size > 0;
  drawOverview(nLayers);
  if (isTable) drawAlignment();
  else { drawWords(); drawFocus(); }
}

let overviewShows = "";

/** Redraw thumbnails only if other weights are shown; update every time which of them are chosen. */
function drawOverview(nLayers) {
  const overview = byId("overview"), wanted = `${state.kind} ${state.end}`;
  if (wanted !== overviewShows) {
    overview.style.setProperty("grid-template-columns", `18px repeat(${nHeads}, minmax(0, 44px))`);
    overview.replaceChildren(...range(nLayers).flatMap((layer) => [
      element("span", {className: "row-name", textContent: layer + 1, ariaHidden: "true"}),
      ...range(nHeads).map((head) => thumbnail(layer, head)),
    ]));
    overviewShows = wanted;
  }
  const buttons = [...overview.querySelectorAll("button")], focused = buttons.indexOf(document.activeElement);
  const current = focused < 0 ? state.layer * nHeads + (chosenHeads()[0] || 0) : focused;
  buttons.forEach((button, i) => {
    button.tabIndex = i === current ? 0 : -1;
    button.ariaPressed = String(Math.floor(i / nHeads) === state.layer && state.heads.has(i % nHeads));
  });
}

/** Make a button with a pixel for each weight of a head; darkness is the square root, to show small weights. */
function thumbnail(layer, head) {
  const view = shown(layer), width = view.keys.length, height = view.queries.length;
  const canvas = element("canvas", {width, height, className: width > 40 ? "fine" : ""}), context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  const rgb = [1, 3, 5].map((i) => parseInt(data.colours[head].slice(i, i + 2), 16));
  for (const q of range(height)) {
    for (const k of range(width)) image.data.set([...rgb, 255 * Math.sqrt(view.weight(head, q, k))], 4 * (q * width + k));
  }
  context.putImageData(image, 0, 0);
  const button = element("button", {
    type: "button", ariaLabel: `layer ${layer + 1}, head ${head + 1}`, title: `layer ${layer + 1}, head ${head + 1}`,
  }, canvas);
  button.style.setProperty("--colour", data.colours[head]);
  button.addEventListener("click", () => change({layer, heads: new Set([head])}));
  return button;
}

function drawWords() {
  const view = shown(), titles = COLUMNS[state.kind];
  for (const [id, side, title] of [["queries", "q", titles[0]], ["keys", "k", titles[1]]]) {
    byId(`${id}-title`).textContent = title;
    const list = byId(id), focused = [...list.querySelectorAll("button")].indexOf(document.activeElement);
    list.replaceChildren(...view[id].map((word, place) => element("li", {}, wordButton(word, side, place))));
    const buttons = list.querySelectorAll("button");
    const current = focused >= 0 ? focused : state.word && state.word.side === side ? state.word.place : 0;
    buttons.forEach((button, place) => { button.tabIndex = place === current ? 0 : -1; });
    if (focused >= 0 && buttons[focused]) buttons[focused].focus();
  }
}

function wordButton(word, side, place) {
  const button = element("button", {
    type: "button", dir: "auto", textContent: word, title: word, className: place === markOf(side) ? "mark" : "",
  });
  const isChosen = () => state.word && state.word.side === side && state.word.place === place;
  button.addEventListener("click", () => choose(isChosen() ? null : {side, place}));
  button.addEventListener("pointerenter", () => { hovered = {side, place}; drawFocus(); });
  button.addEventListener("pointerleave", () => { hovered = null; drawFocus(); });
  return button;
}

function choose(word) {
  state.word = word;
  writeAddress();
  drawFocus();
}

/** Draw all that depends on the selected word: the shades of other words, the lines, the description. */
function drawFocus() {
  if (state.kind === "alignment") return;
  const view = shown(), word = hovered || state.word;
  const weightWith = (place) => word.side === "q" ? meanWeight(view, word.place, place) : meanWeight(view, place, word.place);
  for (const [id, side] of [["queries", "q"], ["keys", "k"]]) {
    byId(id).querySelectorAll("button").forEach((button, place) => {
      const isWord = word && word.side === side && word.place === place;
      button.setAttribute("aria-pressed", String(Boolean(isWord)));
      button.style.setProperty("--weight", word && word.side !== side ? weightWith(place) : 0);
    });
  }
  drawLines(view, word);
  byId("reading").textContent = reading(view, word, weightWith);
}

const NO_HEAD = "Choose a head.";

function reading(view, word, weightWith) {
  if (!state.heads.size) return NO_HEAD;
  if (!word) return "Choose a word (arrow keys move, Escape deselects) to see its attention alone.";
  const [own, others] = word.side === "q" ? [view.queries, view.keys] : [view.keys, view.queries];
  const sorted = range(others.length).sort((a, b) => weightWith(b) - weightWith(a));
  const list = sorted.slice(0, 5).filter((place) => weightWith(place) >= 0.005);
  const partners = list.map((place) => `${named(others, place)} ${percent(weightWith(place))} %`).join(", ");
  const verb = word.side === "q" ? "attends to" : "is attended to by";
  return `${named(own, word.place)} ${verb} ${partners || "nothing here"}; ${headNames()}.`;
}

/** Isolate a word from the text direction around it; add its position if the word occurs more than once. */
function named(words, place) {
  const isAlone = words.indexOf(words[place]) === words.lastIndexOf(words[place]);
  return `\u2068${words[place]}\u2069${isAlone ? "" : ` (${place + 1})`}`;
}

const percent = (weight) => Math.round(100 * weight);

function headNames() {
  const heads = chosenHeads().map((head) => head + 1);
  if (heads.length === nHeads && nHeads > 1) return "mean of all heads";
  return heads.length === 1 ? `head ${heads[0]}` : `mean of heads ${heads.join(", ")}`;
}

/** Draw a line for every weight, with its head's colour and the weight as opacity; also boxes for a chosen word. */
function drawLines(view, word) {
  const canvas = byId("canvas"), row = parseFloat(getComputedStyle(document.documentElement).getPropertyValue("--row"));
  const width = canvas.clientWidth, height = row * Math.max(view.queries.length, view.keys.length), scale = devicePixelRatio || 1;
  canvas.style.setProperty("height", `${height}px`);
  canvas.width = width * scale;
  canvas.height = height * scale;
  const context = canvas.getContext("2d"), heads = chosenHeads(), box = Math.min(8, width / 6 / nHeads), strand = Math.min(2.5, 14 / nHeads);
  const left = word && word.side === "k" ? 8 + box * heads.length : 2, right = width - (word && word.side === "q" ? 8 + box * heads.length : 2);
  context.scale(scale, scale);
  heads.forEach((head, number) => {
    context.strokeStyle = context.fillStyle = data.colours[head];
    const aside = (number - (heads.length - 1) / 2) * strand; // offset, so that no head hides another
    for (const q of range(view.queries.length)) {
      for (const k of range(view.keys.length)) {
        const weight = view.weight(head, q, k), chosen = word && (word.side === "q" ? q : k) === word.place;
        const opacity = word && !chosen ? weight * 0.07 : weight;
        if (opacity < 0.002) continue;
        context.globalAlpha = opacity;
        context.lineWidth = chosen ? 2.5 : 1.7;
        context.beginPath();
        context.moveTo(left, (q + 0.5) * row + aside);
        context.lineTo(right, (k + 0.5) * row + aside);
        context.stroke();
        if (chosen) context.fillRect(
          (word.side === "q" ? right + 4 : 2) + number * box, (word.side === "q" ? k : q) * row + 3, box - 1, row - 6);
      }
    }
  });
}

function drawAlignment() {
  if (!state.heads.size) {
    byId("reading").textContent = NO_HEAD;
    return;
  }
  const view = shown(), table = element("table"), body = element("tbody");
  const heading = (word, place, scope) => element("th", {
    scope, className: place === markOf(scope === "row" ? "q" : "k") ? "mark" : "", title: word,
  }, element("span", {dir: "auto", textContent: word}));
  table.append(
    element("thead", {}, element("tr", {}, element("td", {className: "weak", textContent: "written"}), ...view.keys.map((word, place) => heading(word, place, "col")))),
    body,
  );
  view.queries.forEach((word, q) => {
    const cells = view.keys.map((_, k) => {
      const weight = meanWeight(view, q, k), shade = weight >= 0.55 ? "strong" : weight < 0.095 ? "weak" : "";
      const cell = element("td", {className: shade, textContent: percent(weight), title: `${word} → ${view.keys[k]}: ${percent(weight)} %`});
      cell.style.setProperty("--weight", weight);
      return cell;
    });
    body.append(element("tr", {}, heading(word, q, "row"), ...cells));
  });
  byId("alignment").classList.toggle("dense", view.keys.length > DENSE);
  byId("alignment").replaceChildren(table);
}

// ---- start

byId("sentence").textContent = data.sentence;
byId("translation").textContent = data.translation;
document.querySelector(".pair").classList.toggle("long", data.sentence.length + data.translation.length > 200);
byId("origin").textContent = `Model: ${data.origin}.`;
buildControls();
moveWithArrows(byId("overview"), () => nHeads, () => {});
for (const [id, side] of [["queries", "q"], ["keys", "k"]]) moveWithArrows(byId(id), () => 1, (place) => choose({side, place}));
byId("lines").addEventListener("keydown", (event) => { if (event.key === "Escape") choose(null); });
addEventListener("hashchange", () => { readAddress(); draw(); });
new ResizeObserver(drawFocus).observe(byId("lines"));
readAddress();
draw();
