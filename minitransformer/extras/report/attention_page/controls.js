// ---- the controls

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
