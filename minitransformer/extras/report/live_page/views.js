// ---- what the views of attention and of the numbers show, computed for one translation

/** Return recorded rows as arrays {shape, values, greatest}, with a matrix for each head where a step has heads. */
function arraysOf(rows, nHeads) {
  return Object.fromEntries(Object.entries(rows).map(([name, each]) => {
    const kind = name.split(".").at(-1);
    if (["scores", "weights"].includes(kind)) { // a row for each query and head; keys that come later have no number yet
      const sheets = range(nHeads).map((head) => each.filter((_, i) => i % nHeads === head));
      return [name, arrayOf(sheets, kind === "scores" ? -Infinity : 0, true)];
    }
    if (!["queries", "keys", "values", "mixed"].includes(kind)) return [name, arrayOf([each], 0, false)];
    const width = each[0].length / nHeads;
    return [name, arrayOf(range(nHeads).map((head) => each.map((row) => row.subarray(head * width, (head + 1) * width))), 0, true)];
  }));
}

function arrayOf(sheets, missing, hasHeads) {
  const nRows = sheets[0].length, width = sheets[0].reduce((most, row) => Math.max(most, row.length), 0);
  const values = new Float64Array(sheets.length * nRows * width).fill(missing);
  sheets.flat().forEach((row, i) => values.set(row, i * width));
  const greatest = values.reduce((most, x) => Number.isFinite(x) ? Math.max(most, Math.abs(x)) : most, 0) || 1;
  return {shape: hasHeads ? [sheets.length, nRows, width] : [nRows, width], values, greatest};
}

/** Return the data of both views for a source's pieces and the ids of its translation. */
function viewData(model, tokenizer, source, target) {
  const {rows, logits} = recordNumbers(model, source.map(({id}) => id), target), arrays = arraysOf(rows, model.config.n_heads);
  const written = target.map((id) => ({piece: tokenizer.pieces[id], id})), [start, end] = data.marks;
  const names = [source, written].map((pieces) => shownPieces(pieces.map(({piece}) => piece)));
  const labels = {source: [...names[0], end], target: [start, ...names[1]]};
  const weights = (stack, sublayer) => {
    const layers = range(model.depth[stack]).map((i) => arrays[`${stack}.layers.${i}.${sublayer}.weights`].values);
    const joined = new Float32Array(layers.length * layers[0].length);
    layers.forEach((values, i) => joined.set(values, i * values.length));
    return {layers: layers.length, weights: joined};
  };
  const outputs = [...names[1], end];
  return {
    labels, arrays, colours: data.colours, blocks: data.blocks,
    pieces: {source: [...source, {piece: end, id: END}], target: [{piece: start, id: START}, ...written]},
    places: logits.map((row, i) => nextWords(row, [...target, END][i])),
    attention: {
      colours: data.colours, words: null,
      pieces: {
        "encoder": {queries: labels.source, keys: labels.source, ...weights("encoder", "self_attention")},
        "decoder": {queries: labels.target, keys: labels.target, ...weights("decoder", "self_attention")},
        "encoder-decoder": {queries: outputs, keys: labels.source, ...weights("decoder", "source_attention")},
      },
    },
  };
}

/** Return the most probable next words, and the one that the translation has. */
function nextWords(logits, chosen) {
  const p = softmax(logits), ids = best(logits, data.nBest, () => true);
  if (!ids.includes(chosen)) ids[ids.length - 1] = chosen;
  return ids.map((id) => ({piece: shownToken(id), logit: logits[id], p: p[id], chosen: id === chosen}));
}
