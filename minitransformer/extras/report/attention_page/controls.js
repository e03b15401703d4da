// ---- the controls

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
  for (const layer of range(Math.max(...Object.values(data.pieces).map((kind) => kind.layers)))) {
    byId("layers").append(choice("radio", "layer", layer, String(layer + 1), () => change({layer})));
  }
  for (const head of range(nHeads)) {
    byId("all-heads").before(choice("checkbox", "head", head, String(head + 1), () => {
      if (!state.heads.delete(head)) state.heads.add(head);
      change({});
    }, data.colours[head]));
  }
  byId("all-heads").addEventListener("click", () => change({heads: new Set(range(nHeads))}));
  byId("no-heads").addEventListener("click", () => change({heads: new Set()}));
  byId("end").addEventListener("change", () => change({end: byId("end").checked, word: null}));
  byId("merge").addEventListener("change", () => change({merge: byId("merge").checked, word: null}));
  const options = LEAST.map((value) => element("option", {value, textContent: value ? `from ${value}%` : "all"}));
  byId("least").append(...options);
  byId("least").addEventListener("change", () => change({least: Number(byId("least").value)}));
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
}

/** Set the controls to the view; hide controls that would not change the view. */
function drawControls() {
  for (const input of byId("controls").querySelectorAll("input")) {
    if (input.name === "kind") input.checked = input.value === state.kind;
    if (input.name === "layer") {
      input.checked = Number(input.value) === state.layer;
      input.parentElement.hidden = input.value >= kindData().layers;
    }
    if (input.name === "head") input.checked = state.heads.has(Number(input.value));
  }
  byId("end").checked = state.end;
  byId("end-choice").hidden = state.kind === "decoder";
  byId("merge").checked = state.merge;
  byId("merge-choice").hidden = !data.words;
  byId("least").value = leastShown(shown());
  byId("least-choice").hidden = state.kind === "alignment";
}

/** Make a group of buttons one stop of the Tab key; arrows, Home and End move within it. */
function moveWithArrows(group, columns, onMove) {
  group.addEventListener("focusin", ({target}) => {
    for (const button of group.querySelectorAll("button")) button.tabIndex = button === target ? 0 : -1;
  });
  group.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return; // the browser's own keys, as Alt+ArrowLeft to go back
    const buttons = [...group.querySelectorAll("button")];
    const here = buttons.indexOf(document.activeElement), steps = {
      ArrowDown: columns, ArrowUp: -columns, ArrowRight: 1, ArrowLeft: -1, Home: -here, End: buttons.length - 1 - here,
    };
    const there = buttons[here + steps[event.key]];
    if (here < 0 || !there) return;
    event.preventDefault();
    there.focus();
    onMove(here + steps[event.key]);
  });
}

/** Change the view, and draw it; a kind without the current layer shows its last one. */
function change(changes) {
  Object.assign(state, changes);
  state.layer = Math.min(state.layer, kindData().layers - 1);
  hovered = null;
  writeAddress();
  draw();
}

function choose(word) {
  state.word = word;
  writeAddress();
  drawFocus();
}
