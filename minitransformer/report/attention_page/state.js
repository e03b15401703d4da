const KIND_NAMES = {
  "encoder": "Encoder", "decoder": "Decoder", "encoder-decoder": "Encoder–decoder", "alignment": "Alignment",
};
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
const DENSE = 24; // from this number of words, cells are too small for numbers

const nHeads = data.colours.length;
const deepest = Math.max(...Object.values(data.kinds).map((kind) => kind.layers)); // the decoder may have fewer layers

/** Decode base64 of 16-bit numbers into weights. */
function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  return Float32Array.from({length: bytes.length / 2}, (_, i) => view.getUint16(2 * i, true) / 65535);
}

/** Sum every row of weights without its last key, the end symbol; computed once, not for each weight drawn. */
function sumsWithoutEnd({weights, keys}) {
  return Float64Array.from({length: weights.length / keys.length}, (_, row) =>
    weights.subarray(row * keys.length, (row + 1) * keys.length - 1).reduce((sum, weight) => sum + weight, 0));
}

for (const kind of Object.values(data.kinds)) {
  kind.weights = unpacked(kind.weights);
  kind.sums = sumsWithoutEnd(kind);
}
data.kinds["alignment"] = data.kinds["encoder-decoder"];

// ---- the view: stored in the address, so that a link restores it

const state = {kind: "encoder", layer: 0, heads: new Set(range(nHeads)), word: null, end: true};
let hovered = null;

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  if (Object.hasOwn(KIND_NAMES, given.get("kind"))) state.kind = given.get("kind");
  const layer = Number(given.get("layer"));
  if (Number.isInteger(layer) && layer >= 1 && layer <= deepest) state.layer = layer - 1;
  chooseExistingLayer();
  const heads = given.has("heads") ? given.get("heads").split(",").map((number) => number - 1) : range(nHeads);
  state.heads = new Set(heads.filter((head) => range(nHeads).includes(head)));
  state.end = given.get("end") !== "off";
  const [, side, place] = (given.get("word") || "").match(/^([qk])(\d+)$/) || [];
  const words = shown()[side === "q" ? "queries" : "keys"];
  state.word = side && place >= 1 && place <= words.length ? {side, place: place - 1} : null;
}

/** Choose the last layer of the current kind if it has fewer layers than the kind before it. */
function chooseExistingLayer() {
  state.layer = Math.min(state.layer, data.kinds[state.kind].layers - 1);
}

function writeAddress() {
  const parts = [`kind=${state.kind}`, `layer=${state.layer + 1}`];
  if (state.heads.size < nHeads) parts.push(`heads=${[...state.heads].map((head) => head + 1).sort((a, b) => a - b)}`);
  if (state.word) parts.push(`word=${state.word.side}${state.word.place + 1}`);
  if (!state.end) parts.push("end=off");
  history.replaceState(null, "", `#${parts.join("&")}`);
}

/** Return words and weights(head, query, key) of the current kind and layer, without a hidden end symbol. */
function shown(layer = state.layer) {
  const {queries, keys, weights, sums} = data.kinds[state.kind], width = keys.length;
  const row = (head, q) => ((layer * nHeads) + head) * queries.length + q;
  if (state.end || state.kind === "decoder") {
    return {queries, keys, weight: (head, q, k) => weights[row(head, q) * width + k]};
  }
  return {
    queries, keys: keys.slice(0, -1),
    weight: (head, q, k) => { const place = row(head, q); return sums[place] ? weights[place * width + k] / sums[place] : 0; },
  };
}

/** Return the index of the start or end symbol: first in the decoder's input, last in the other sequences. */
const markOf = (side) => state.kind === "decoder" ? 0 : data.kinds[state.kind][side === "q" ? "queries" : "keys"].length - 1;

const chosenHeads = () => range(nHeads).filter((head) => state.heads.has(head));

/** Return the mean over the chosen heads of the weight from query q to key k. */
function meanWeight(view, q, k) {
  const heads = chosenHeads();
  return heads.length ? heads.reduce((sum, head) => sum + view.weight(head, q, k), 0) / heads.length : 0;
}
