// ---- drawing

const NOTES = {
  "encoder": "Every source word attends to every source word.",
  "decoder": "Every word that the decoder has read attends to itself and to the words before it.",
  "encoder-decoder": "Every decoder step, labelled with the word that it writes, attends to the source words.",
  "alignment": "How much each written word (row) attends to each source word (column), averaged over the chosen heads.",
};
const COLUMNS = {
  "encoder": ["attending", "attended to"], "decoder": ["attending", "attended to"],
  "encoder-decoder": ["written word", "source word"],
};

function draw() {
  const isTable = state.kind === "alignment";
  drawControls();
  const name = KIND_NAMES[state.kind] + (isTable ? "" : " attention");
  byId("figure-title").textContent = `${name}, layer ${state.layer + 1}`;
  byId("figure-note").textContent = notes(isTable);
  byId("lines").hidden = isTable;
  byId("alignment").hidden = !isTable || !state.heads.size;
  byId("reading").hidden = isTable && state.heads.size > 0;
  drawOverview();
  if (isTable) drawAlignment();
  else { drawWords(); drawFocus(); }
}

/** Return a note on the view, and on changes of the model's weights. */
function notes(isTable) {
  const said = [NOTES[state.kind]], least = leastShown(shown());
  if (state.merge && data.words) {
    said.push("Whole words: weights are summed over a word's attended pieces, and averaged over its attending pieces.");
  }
  if (!state.end && state.kind !== "decoder") {
    said.push("Without the end symbol: the other weights of each word are divided by their sum.");
  }
  if (least && !isTable) said.push(`Lines show weights from ${least}%, and all weights of a chosen word.`);
  return said.join(" ");
}

let overviewShows = "";

/** Redraw thumbnails only if other weights are shown; always update the marks of chosen thumbnails. */
function drawOverview() {
  const overview = byId("overview"), wanted = `${state.kind} ${state.end} ${state.merge}`;
  if (wanted !== overviewShows) {
    overview.style.setProperty("grid-template-columns", `18px repeat(${nHeads}, minmax(0, 44px))`);
    overview.replaceChildren(...range(kindData().layers).flatMap((layer) => [
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

/** Make a button with a pixel for each weight of a head; opacity is the weight's square root, to show small weights. */
function thumbnail(layer, head) {
  const view = shown(layer), width = view.keys.length, height = view.queries.length;
  const canvas = element("canvas", {width, height, className: width > 40 ? "fine" : ""});
  const context = canvas.getContext("2d"), image = context.createImageData(width, height);
  const rgb = [1, 3, 5].map((i) => parseInt(data.colours[head].slice(i, i + 2), 16));
  for (const q of range(height)) {
    for (const k of range(width)) {
      image.data.set([...rgb, 255 * Math.sqrt(view.weight(head, q, k))], 4 * (q * width + k));
    }
  }
  context.putImageData(image, 0, 0);
  const name = `layer ${layer + 1}, head ${head + 1}`;
  const button = element("button", {type: "button", ariaLabel: name, title: name}, canvas);
  button.style.setProperty("--colour", data.colours[head]);
  button.addEventListener("click", () => change({layer, heads: new Set([head])}));
  return button;
}

function drawWords() {
  const view = shown(), titles = COLUMNS[state.kind];
  for (const [id, side, title] of [["queries", "q", titles[0]], ["keys", "k", titles[1]]]) {
    byId(`${id}-title`).textContent = title;
    const list = byId(id), focused = [...list.querySelectorAll("button")].indexOf(document.activeElement);
    replaceChildren(list, view[id].map((word, place) => element("li", {}, wordButton(word, side, place))));
    const buttons = list.querySelectorAll("button");
    const current = focused >= 0 ? focused : state.word?.side === side ? state.word.place : 0;
    buttons.forEach((button, place) => { button.tabIndex = place === current ? 0 : -1; });
  }
}

const isWord = (word, side, place) => word?.side === side && word.place === place;

function wordButton(word, side, place) {
  const button = element("button", {
    type: "button", dir: "auto", textContent: word, title: word, className: place === markOf(side) ? "mark" : "",
  });
  button.addEventListener("click", () => choose(isWord(state.word, side, place) ? null : {side, place}));
  button.addEventListener("pointerenter", () => { hovered = {side, place}; drawFocus(); });
  button.addEventListener("pointerleave", () => { hovered = null; drawFocus(); });
  return button;
}

/** Draw all that depends on the selected word: the shades of other words, the lines, the description. */
function drawFocus() {
  if (state.kind === "alignment") return;
  const view = shown(), word = hovered || state.word;
  const weightWith = (place) =>
    word.side === "q" ? meanWeight(view, word.place, place) : meanWeight(view, place, word.place);
  for (const [id, side] of [["queries", "q"], ["keys", "k"]]) {
    byId(id).querySelectorAll("button").forEach((button, place) => {
      button.ariaPressed = String(isWord(word, side, place));
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
  const partners = list.map((place) => `${named(others, place)} ${percent(weightWith(place))}`).join(", ");
  const verb = word.side === "q" ? "attends to" : "is attended to by";
  return `${named(own, word.place)} ${verb} ${partners || "nothing here"}; ${headNames()}.`;
}

/** Return a word, with its position if it occurs more than once. */
function named(words, place) {
  const isAlone = words.indexOf(words[place]) === words.lastIndexOf(words[place]);
  return isolated(words[place]) + (isAlone ? "" : ` (${place + 1})`);
}

const percent = (weight) => `${Math.round(100 * weight)}%`;

function headNames() {
  const heads = chosenHeads().map((head) => head + 1);
  if (heads.length === nHeads && nHeads > 1) return "mean of all heads";
  return heads.length === 1 ? `head ${heads[0]}` : `mean of heads ${heads.join(", ")}`;
}

/** Draw lines in the heads' colours, with weights as opacity, and boxes beside the partners of a chosen word. */
function drawLines(view, word) {
  const canvas = byId("canvas"), row = byId("queries").firstChild.offsetHeight, scale = devicePixelRatio;
  const width = canvas.clientWidth, height = row * Math.max(view.queries.length, view.keys.length);
  canvas.style.setProperty("height", `${height}px`);
  canvas.width = width * scale;
  canvas.height = height * scale;
  const context = canvas.getContext("2d"), heads = chosenHeads(), least = leastShown(view) / 100;
  const box = Math.min(8, width / 6 / nHeads), strand = Math.min(2.5, 14 / nHeads);
  const margin = (side) => word?.side === side ? 8 + box * heads.length : 2; // the boxes are opposite the word
  const left = margin("k"), right = width - margin("q");
  context.scale(scale, scale);
  heads.forEach((head, number) => {
    context.strokeStyle = context.fillStyle = data.colours[head];
    const aside = (number - (heads.length - 1) / 2) * strand; // offset, so that no head hides another
    for (const q of range(view.queries.length)) {
      for (const k of range(view.keys.length)) {
        const weight = view.weight(head, q, k), chosen = word && (word.side === "q" ? q : k) === word.place;
        const opacity = word && !chosen ? weight * 0.07 : weight;
        if (opacity < 0.002 || (!chosen && weight < least)) continue;
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
  const view = shown();
  const heading = (word, place, scope) => element("th", {
    scope, className: place === markOf(scope === "row" ? "q" : "k") ? "mark" : "", title: word,
  }, element("span", {dir: "auto", textContent: word}));
  const headings = view.keys.map((word, place) => heading(word, place, "col"));
  const rows = view.queries.map((word, q) => {
    const cells = view.keys.map((key, k) => {
      const weight = meanWeight(view, q, k), text = percent(weight);
      const className = weight >= 0.55 ? "strong" : weight < 0.095 ? "weak" : "";
      const cell = element("td", {className, textContent: text, title: `${word} → ${key}: ${text}`});
      cell.style.setProperty("--weight", weight);
      return cell;
    });
    return element("tr", {}, heading(word, q, "row"), ...cells);
  });
  byId("alignment").classList.toggle("dense", view.keys.length > MANY);
  const dir = getComputedStyle(byId("sentence")).direction; // columns are source words, in the order of reading
  byId("alignment").replaceChildren(element("table", {dir},
    element("thead", {}, element("tr", {}, element("td", {className: "weak", textContent: "written"}), ...headings)),
    element("tbody", {}, ...rows),
  ));
}

// ---- start

/** Show the attention of a sentence; the first time, build the controls and read the view from the address. */
function show(given) {
  const isFirst = !nHeads;
  data = given;
  nHeads = data.colours.length;
  unpackKinds();
  overviewShows = "";
  hovered = state.word = null;
  if (isFirst) {
    byId("overview-box").open = matchMedia("(min-width: 861px)").matches; // a narrow page begins with the words
    buildControls();
    moveWithArrows(byId("overview"), nHeads, () => {});
    for (const [id, side] of [["queries", "q"], ["keys", "k"]]) {
      moveWithArrows(byId(id), 1, (place) => choose({side, place}));
    }
    byId("lines").addEventListener("keydown", (event) => { if (event.key === "Escape") choose(null); });
    addEventListener("hashchange", () => { readAddress(); draw(); });
    new ResizeObserver(drawFocus).observe(byId("lines"));
    readAddress();
  }
  draw();
}
