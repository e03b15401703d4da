// ---- the model of the paper with a layer on each side, its task and its training

const START = 1, END = 2, ZERO = 3; // ids: of the symbols, and of the digit 0
const N_LINES = 32; // of a batch
const LENGTHS = [4, 5, 6, 7, 8]; // digits of a line; the lines of a batch have one length
const N_HELD_OUT = 10; // lines of each length, which no batch has

/** Return a function that draws from [0, 1), the same numbers for the same seed. Source: Steele et al. 2014, SplitMix. */
function generator(seed) {
  let state = seed;
  return () => {
    let z = state = (state + 0x9e3779b9) | 0;
    z = Math.imul(z ^ z >>> 16, 0x21f0aaad);
    z = Math.imul(z ^ z >>> 15, 0x735a2d97);
    return ((z ^ z >>> 15) >>> 0) / 2 ** 32;
  };
}

const randomLine = (random, length) => Array.from({length}, () => ZERO + Math.floor(10 * random()));
const reversed = (line) => [...line].reverse();
const HELD_OUT = (() => {
  const random = generator(0);
  return LENGTHS.map((length) => Array.from({length: N_HELD_OUT}, () => randomLine(random, length)));
})();
const IS_HELD_OUT = new Set(HELD_OUT.flat().map(String));

class Learner {
  /** `off` names parts of the paper that this model lacks: "warm-up", "positions", "mask", "scale", "smoothing". */
  constructor({model, training}, off, seed) {
    Object.assign(this, {config: model, training, off: new Set(off), random: generator(seed), step: 0, attentions: {}});
    this.makeParameters();
    this.moments = Object.fromEntries(Object.entries(this.parameters).map(([name, {values}]) => (
      [name, {m: new Float64Array(values.length), v: new Float64Array(values.length)}])));
  }

  /** Draw the parameters; they have the names that they have in Python. */
  makeParameters() {
    const {vocabulary_size: nWords, d_model: d, d_ff: dHidden} = this.config, {random} = this;
    const normal = () => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
    const glorot = (rows, columns) => (2 * random() - 1) * Math.sqrt(6 / (rows + columns));
    const add = (name, rows, columns, draw) => {
      this.parameters[name] = new Matrix(rows, columns);
      this.parameters[name].values.forEach((_, i, values) => { values[i] = draw(rows, columns); });
    };
    this.parameters = {};
    add("source_embedding.weight", nWords, d, () => normal() / Math.sqrt(d));
    for (const [layer, attentions] of [["encoder.layers.0", ["self_attention"]], ["decoder.layers.0", ["self_attention", "source_attention"]]]) {
      for (const name of attentions) for (const map of ["query", "key", "value", "output"]) add(`${layer}.${name}.${map}.weight`, d, d, glorot);
      for (const [map, ...shape] of [["hidden", d, dHidden], ["output", dHidden, d]]) {
        add(`${layer}.feed_forward.${map}.weight`, ...shape, glorot);
        add(`${layer}.feed_forward.${map}.bias`, 1, shape[1], () => 0);
      }
      for (const name of [...attentions, "feed_forward"]) {
        add(`${layer}.${name}_residual.norm.gain`, 1, d, () => 1);
        add(`${layer}.${name}_residual.norm.bias`, 1, d, () => 0);
      }
    }
  }

  // -- the model

  /** Return the encoder's output for lines of ids, all of one length. */
  encode(tape, lines) {
    const x = this.embedded(tape, lines);
    return this.fed(tape, "encoder.layers.0", this.attended(tape, "encoder.layers.0.self_attention", x, x, lines.length, false));
  }

  /** Return the logits of the word after each word of the decoder's input. */
  decode(tape, memory, lines) {
    let x = this.embedded(tape, lines);
    x = this.attended(tape, "decoder.layers.0.self_attention", x, x, lines.length, !this.off.has("mask"));
    x = this.attended(tape, "decoder.layers.0.source_attention", x, memory, lines.length, false);
    return linearTransposed(tape, this.fed(tape, "decoder.layers.0", x), this.parameters["source_embedding.weight"]);
  }

  embedded(tape, lines) {
    const positions = lines.flatMap((line) => line.map((_, i) => this.off.has("positions") ? null : i));
    return embedding(tape, this.parameters["source_embedding.weight"], lines.flat(), positions);
  }

  /** Multi-head attention from x to `memory`, added to x and normalised. */
  attended(tape, name, x, memory, nLines, isCausal) {
    const {n_heads: nHeads, d_k: dK} = this.config, scale = this.off.has("scale") ? 1 : 1 / Math.sqrt(dK);
    const map = (kind, rows) => linear(tape, rows, this.parameters[`${name}.${kind}.weight`]);
    const {y, weights} = attention(tape, map("query", x), map("key", memory), map("value", memory), {nLines, nHeads, scale, isCausal});
    this.attentions[name] = weights;
    return this.normalised(tape, name, x, map("output", y));
  }

  /** The feed-forward network, added to x and normalised. */
  fed(tape, layer, x) {
    const map = (kind, rows) => linear(tape, rows, ...["weight", "bias"].map((each) => this.parameters[`${layer}.feed_forward.${kind}.${each}`]));
    return this.normalised(tape, `${layer}.feed_forward`, x, map("output", relu(tape, map("hidden", x))));
  }

  normalised(tape, sublayer, x, y) {
    const [gain, bias] = ["gain", "bias"].map((each) => this.parameters[`${sublayer}_residual.norm.${each}`]);
    return addNorm(tape, x, y, gain, bias, this.config.layer_norm_eps);
  }

  /** Return loss, p and target distribution for lines of digits and their targets; attention weights are in `attentions`. */
  loss(tape, lines, targets) {
    const logits = this.decode(tape, this.encode(tape, lines.map((line) => [...line, END])), targets.map((line) => [START, ...line]));
    return crossEntropy(tape, logits, targets.flatMap((line) => [...line, END]), this.off.has("smoothing") ? 0 : this.config.label_smoothing);
  }

  /** Greedy search for lines of one length: write the most probable word, read it, and so on. The start symbol is never written. */
  write(lines) {
    const memory = this.encode([], lines.map((line) => [...line, END])), {vocabulary_size: nWords} = this.config;
    let written = lines.map(() => [START]);
    for (let i = 0; i <= lines[0].length; i++) {
      const {values} = this.decode([], memory, written);
      written = written.map((line, number) => {
        const last = values.subarray(((number + 1) * line.length - 1) * nWords, (number + 1) * line.length * nWords);
        last[START] = -Infinity;
        return [...line, last.indexOf(last.reduce((a, b) => Math.max(a, b)))];
      });
    }
    return written.map((line) => line.slice(1));
  }

  // -- its training

  /** The learning rate of an update: d^−½ · min(step^−½, step · w^−3/2), or without warm-up d^−½ · step^−½. */
  rate(step) {
    const rising = this.off.has("warm-up") ? Infinity : step * this.training.warmup_steps ** -1.5;
    return this.config.d_model ** -0.5 * Math.min(step ** -0.5, rising);
  }

  /** Draw lines that are not held out, all of one length. */
  randomBatch() {
    const length = LENGTHS[Math.floor(this.random() * LENGTHS.length)], lines = [];
    while (lines.length < N_LINES) {
      const line = randomLine(this.random, length);
      if (!IS_HELD_OUT.has(String(line))) lines.push(line);
    }
    return lines;
  }

  /** Make one update by lines of digits; return its loss, its rate, and the norm of the gradient of each part of the model. */
  update(lines = this.randomBatch()) {
    const tape = [], entries = Object.entries(this.parameters), rate = this.rate(++this.step), norms = {};
    for (const [, {grad}] of entries) grad.fill(0);
    const {loss} = this.loss(tape, lines, lines.map(reversed));
    backward(tape);
    for (const [name, parameter] of entries) {
      const part = name.replace("_residual", "").split(".").slice(0, 4).join(".");
      norms[part] = Math.hypot(norms[part] ?? 0, Math.sqrt(dot(parameter.grad, 0, parameter.grad, 0, parameter.grad.length)));
      adam(parameter, this.moments[name], this.step, rate, this.training);
    }
    return {loss, rate, norms};
  }

  /** Return the share of held-out lines that are reversed without a fault. */
  share() {
    const found = HELD_OUT.map((lines) => this.write(lines).filter((line, i) => String(line) === String([...reversed(lines[i]), END])).length);
    return found.reduce((a, b) => a + b) / HELD_OUT.flat().length;
  }
}
