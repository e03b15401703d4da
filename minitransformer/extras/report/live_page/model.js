// ---- the model: Vaswani et al. 2017, section 3; rows of numbers in float64, weights as they were stored

/** Read weights, an object of {values, shape} by name, from bytes; a matrix of int8 has a float32 scale for each row. */
function readWeights({table, bytes}) {
  const {buffer} = toBytes(bytes), weights = {};
  for (const [name, {shape, dtype, offset}] of Object.entries(table)) {
    const n = shape.reduce((product, size) => product * size, 1);
    if (dtype === "float32") weights[name] = {shape, values: new Float32Array(buffer, offset, n)};
    if (dtype === "bfloat16") {
      const halves = new Uint16Array(buffer, offset, n);
      weights[name] = {shape, values: new Float32Array(Uint32Array.from(halves, (half) => half << 16).buffer)};
    }
    if (dtype === "int8") {
      const scales = new Float32Array(buffer, offset, shape[0]), steps = new Int8Array(buffer, offset + 4 * shape[0], n);
      weights[name] = {shape, values: Float32Array.from(steps, (step, i) => step * scales[Math.floor(i / shape[1])])};
    }
  }
  return weights;
}

function transposed({values, shape: [rows, columns]}) {
  const turned = new Float32Array(values.length);
  for (let i = 0; i < rows; i++) for (let j = 0; j < columns; j++) turned[j * rows + i] = values[i * columns + j];
  return {values: turned, shape: [columns, rows]};
}

/** Compute x W + b for one row x. Numbers that are 0 are left out, as most are after ReLU; four are taken at once for speed. */
function product(x, {values, shape: [, n]}, bias) {
  const y = bias ? Float64Array.from(bias) : new Float64Array(n), used = [];
  for (let i = 0; i < x.length; i++) if (x[i] !== 0) used.push(i);
  for (let u = 0; u < used.length; u += 4) {
    const i = used[u], [j, k, l] = [1, 2, 3].map((more) => used[u + more] ?? i), isLast = u + 4 > used.length;
    const a = x[i], b = isLast && u + 1 >= used.length ? 0 : x[j], c = isLast && u + 2 >= used.length ? 0 : x[k], d = isLast ? 0 : x[l];
    for (let o = 0; o < n; o++) y[o] += a * values[i * n + o] + b * values[j * n + o] + c * values[k * n + o] + d * values[l * n + o];
  }
  return y;
}

const plus = (x, y) => x.map((value, i) => value + y[i]);

function softmax(x) {
  const greatest = x.reduce((a, b) => Math.max(a, b), -Infinity), powers = x.map((value) => Math.exp(value - greatest));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((power) => power / sum);
}

const ACTIVATIONS = {
  relu: (x) => Math.max(0, x),
  swish: (x) => x / (1 + Math.exp(-x)),
  gelu_tanh: (x) => x / 2 * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))),
};

class Model {
  /** `off` has names of layers, such as "encoder.0", and of heads, such as "encoder.0.self_attention.2". */
  constructor({config, weights}) {
    Object.assign(this, {config, weights: readWeights(weights), off: new Set()});
    const {tied} = config;
    this.target = tied === "all" ? "source_embedding" : "target_embedding";
    this.projection = transposed(this.weights[`${tied === "none" ? "projection" : this.target}.weight`]);
    this.depth = {encoder: config.n_layers, decoder: config.n_decoder_layers ?? config.n_layers};
  }

  /** Encode ids; return for each decoder layer the keys and values (rows) of the encoder's output. */
  encode(ids, record = () => {}) {
    let rows = ids.map((id, position) => this.embedded("source", "source_embedding", id, position, record));
    for (let i = 0; i < this.depth.encoder; i++) rows = this.layer("encoder", i, rows, null, null, record);
    rows = this.lastNorm("encoder", rows, record);
    return Array.from({length: this.depth.decoder}, (_, i) => this.keysValues(`decoder.layers.${i}.source_attention`, rows, record));
  }

  /** Return the state of a decoder that has read nothing: keys and values for each layer. */
  begin() {
    return Array.from({length: this.depth.decoder}, () => ({keys: [], values: []}));
  }

  /** Let each state read one more token, and return the decoder's result for each: rows of D numbers. */
  decode(states, tokens, memory, record = () => {}) {
    const position = states[0][0].keys.length;
    let rows = tokens.map((id) => this.embedded("target", this.target, id, position, record));
    for (let i = 0; i < this.depth.decoder; i++) {
      rows = this.layer("decoder", i, rows, states.map((state) => state[i]), memory[i], record);
    }
    return this.lastNorm("decoder", rows, record);
  }

  /** Return the logits of all tokens for one row of the decoder's result. */
  logits(row) {
    return product(row, this.projection, this.weights.softmax_bias?.values);
  }

  embedded(side, table, id, position, record) {
    const {d_model: width, start, positions, first_position: first} = this.config;
    const isZero = side === "target" && id === START && start === "zero";
    const at = (side === "target" && id === START && start === "end" ? END : id) * width, scale = isZero ? 0 : Math.sqrt(width);
    const row = Float64Array.from(this.weights[`${table}.weight`].values.subarray(at, at + width), (x) => scale * x);
    const learned = positions === "learned" && this.weights[`${side}_positions.weight`].values;
    const place = learned ? Float64Array.from(learned.subarray((position + first) * width, (position + first + 1) * width))
      : this.sinusoid(position + first);
    record(`${side}.embedding`, row);
    record(`${side}.position`, place);
    record(`${side}.sum`, plus(row, place));
    return plus(row, place);
  }

  sinusoid(position) {
    const {d_model: width, positions} = this.config, half = width / 2, byPairs = positions === "interleaved";
    return Float64Array.from({length: width}, (_, i) => {
      const isSine = byPairs ? i % 2 === 0 : i < half, pair = byPairs ? i >> 1 : i % half;
      const angle = position * 10000 ** -(pair / (byPairs ? half : Math.max(1, half - 1)));
      return isSine ? Math.sin(angle) : Math.cos(angle);
    });
  }

  /** Apply a layer of the encoder (`states` is null) or of the decoder. A layer that is off returns what it reads. */
  layer(stack, i, given, states, memory, record) {
    const name = `${stack}.layers.${i}`;
    let rows = this.sublayer(`${name}.self_attention`, given, record, (x) => {
      const {keys, values} = this.keysValues(`${name}.self_attention`, x, record);
      states?.forEach((state, row) => { state.keys.push(keys[row]); state.values.push(values[row]); });
      return this.attention(`${name}.self_attention`, x, states ?? x.map(() => ({keys, values})), record);
    });
    if (states) {
      rows = this.sublayer(`${name}.source_attention`, rows, record, (x) =>
        this.attention(`${name}.source_attention`, x, x.map(() => memory), record));
    }
    rows = this.sublayer(`${name}.feed_forward`, rows, record, (x) => {
      const hidden = this.linear(`${name}.feed_forward.hidden`, x).map((row) => row.map(ACTIVATIONS[this.config.activation]));
      hidden.forEach((row) => record(`${name}.feed_forward.hidden.weight`, row));
      return this.linear(`${name}.feed_forward.output`, hidden, record);
    });
    return this.off.has(`${stack}.${i}`) ? given : rows;
  }

  /** Add what a sublayer computes to its input; the norm is after the sum ("post") or before the sublayer ("pre"). */
  sublayer(name, rows, record, compute) {
    const norm = (x) => this.layerNorm(`${name}_residual.norm`, x, record);
    if (this.config.norm === "pre") return compute(rows.map(norm)).map((y, i) => plus(rows[i], y));
    return compute(rows).map((y, i) => norm(plus(rows[i], y)));
  }

  lastNorm(stack, rows, record) {
    return this.config.norm === "pre" ? rows.map((row) => this.layerNorm(`${stack}.norm`, row, record)) : rows;
  }

  layerNorm(name, x, record) {
    const gain = this.weights[`${name}.gain`].values, bias = this.weights[`${name}.bias`].values;
    const mean = x.reduce((a, b) => a + b, 0) / x.length;
    const variance = x.reduce((sum, value) => sum + (value - mean) ** 2, 0) / x.length;
    const factor = 1 / Math.sqrt(variance + this.config.layer_norm_eps);
    const row = x.map((value, i) => gain[i] * (value - mean) * factor + bias[i]);
    record(`${name}.gain`, row);
    return row;
  }

  /** Compute x W + b for each row. */
  linear(name, rows, record) {
    const bias = this.weights[`${name}.bias`]?.values, results = rows.map((row) => product(row, this.weights[`${name}.weight`], bias));
    if (record) results.forEach((row) => record(`${name}.weight`, row));
    return results;
  }

  keysValues(name, rows, record) {
    const keys = this.linear(`${name}.key`, rows), values = this.linear(`${name}.value`, rows);
    keys.forEach((row) => record(`${name}.keys`, row));
    values.forEach((row) => record(`${name}.values`, row));
    return {keys, values};
  }

  /** Attend from each row of x to its keys and values. In the encoder, the query of row i is at position i. */
  attention(name, x, keysValues, record) {
    const {n_heads: nHeads, neighbourhood} = this.config, isSelf = name.endsWith("self_attention");
    const [stack, , layer, sublayer] = name.split(".");
    const mixed = this.linear(`${name}.query`, x).map((query, row) => {
      const {keys, values} = keysValues[row], dK = query.length / nHeads, dV = values[0].length / nHeads;
      const result = new Float64Array(nHeads * dV), place = stack === "encoder" ? row : keys.length - 1;
      const isSeen = (key) => !isSelf || neighbourhood === null || Math.abs(key - place) <= neighbourhood;
      record(`${name}.queries`, query);
      for (let head = 0; head < nHeads; head++) {
        const scores = Float64Array.from(keys, (key, k) => {
          if (!isSeen(k)) return -Infinity;
          let sum = 0;
          for (let j = head * dK; j < (head + 1) * dK; j++) sum += query[j] * key[j];
          return sum / Math.sqrt(dK);
        });
        const weights = softmax(scores);
        if (!this.off.has(`${stack}.${layer}.${sublayer}.${head}`)) {
          weights.forEach((weight, k) => {
            for (let j = head * dV; j < (head + 1) * dV; j++) result[j] += weight * values[k][j];
          });
        }
        record(`${name}.scores`, scores);
        record(`${name}.weights`, weights);
      }
      record(`${name}.mixed`, result);
      return result;
    });
    return this.linear(`${name}.output`, mixed, record);
  }
}
