const KIND_NAMES = {
  "encoder": "Encoder", "decoder": "Decoder", "encoder-decoder": "Encoder–decoder", "alignment": "Alignment",
};
const LEAST = [0, 5, 10, 20, 50]; // percent: the reader may hide weights below one of these numbers
const MANY = 24; // with more words, the table has no numbers, and small weights have no lines by default
const LEAST_OF_MANY = 20;

let nHeads = 0;

/** Decode base64 of 16-bit numbers into weights; a page that computes has them already. */
function unpacked(weights) {
  if (typeof weights !== "string") return weights;
  const bytes = toBytes(weights), view = new DataView(bytes.buffer);
  return Float32Array.from({length: bytes.length / 2}, (_, i) => view.getUint16(2 * i, true) / 65535);
}

/** Sum every row of weights without its last key, the end symbol; computed once, not for each weight drawn. */
function sumsWithoutEnd({weights, keys}) {
  return Float64Array.from({length: weights.length / keys.length}, (_, row) =>
    weights.subarray(row * keys.length, (row + 1) * keys.length - 1).reduce((sum, weight) => sum + weight, 0));
}

function unpackKinds() {
  for (const kind of [data.pieces, data.words || {}].flatMap(Object.values)) {
    kind.weights = unpacked(kind.weights);
    kind.sums = sumsWithoutEnd(kind);
  }
}

// ---- the view

/** The view: kind, layer, heads, selected word, and options; readAddress sets it. */
const state = {};
let hovered = null;

/** Return layers, words and weights of a kind, for pieces or for whole words. */
function kindData(kind = state.kind) {
  const kinds = state.merge && data.words || data.pieces;
  return kinds[kind === "alignment" ? "encoder-decoder" : kind];
}

/** Return words and weights(head, query, key) of the current kind and a layer, without a hidden end symbol. */
function shown(layer = state.layer) {
  const {queries, keys, weights, sums} = kindData(), width = keys.length;
  const row = (head, q) => ((layer * nHeads) + head) * queries.length + q;
  if (state.end || state.kind === "decoder") {
    return {queries, keys, weight: (head, q, k) => weights[row(head, q) * width + k]};
  }
  return {
    queries, keys: keys.slice(0, -1),
    weight: (head, q, k) => { const i = row(head, q); return sums[i] ? weights[i * width + k] / sums[i] : 0; },
  };
}

/** Return the index of the start or end symbol: first in the decoder's input, last in the other sequences. */
const markOf = (side) => state.kind === "decoder" ? 0 : kindData()[side === "q" ? "queries" : "keys"].length - 1;

const chosenHeads = () => range(nHeads).filter((head) => state.heads.has(head));

/** Return the mean over the chosen heads of the weight from query q to key k. */
function meanWeight(view, q, k) {
  const heads = chosenHeads();
  return heads.length ? heads.reduce((sum, head) => sum + view.weight(head, q, k), 0) / heads.length : 0;
}

/** Return the least weight, in percent, that has a line: the chosen one, or a default for the number of words. */
function leastShown({queries, keys}) {
  return state.least ?? (Math.max(queries.length, keys.length) > MANY ? LEAST_OF_MANY : 0);
}
