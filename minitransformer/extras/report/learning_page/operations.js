// ---- operations on matrices of float64: each returns its result, and puts its backward pass on the tape

/** A matrix with the gradient of the loss. Each backward pass adds to the gradients of what its operation has read. */
class Matrix {
  constructor(rows, columns) {
    Object.assign(this, {rows, columns, values: new Float64Array(rows * columns), grad: new Float64Array(rows * columns)});
  }
}

/** Run the backward passes, last operation first. */
function backward(tape) {
  for (const pass of tape.reverse()) pass();
}

/** Add A B to C, for A (n, k), B (k, m) and C (n, m); either factor may be stored transposed. Four rows of B at once are faster. */
function addProduct(c, a, b, [n, k, m], {turnedA = false, turnedB = false} = {}) {
  const rows = turnedB ? transposed(b, m, k) : b, step = turnedA ? n : 1;
  for (let i = 0; i < n; i++) {
    let l = 0, at = turnedA ? i : i * k;
    for (; l + 3 < k; l += 4, at += 4 * step) {
      const x0 = a[at], x1 = a[at + step], x2 = a[at + 2 * step], x3 = a[at + 3 * step], row = l * m;
      for (let j = 0; j < m; j++) {
        c[i * m + j] += x0 * rows[row + j] + x1 * rows[row + m + j] + x2 * rows[row + 2 * m + j] + x3 * rows[row + 3 * m + j];
      }
    }
    for (; l < k; l++, at += step) addScaled(c, i * m, a[at], rows, l * m, m);
  }
}

function transposed(values, rows, columns) {
  const turned = new Float64Array(values.length);
  for (let i = 0; i < rows; i++) for (let j = 0; j < columns; j++) turned[j * rows + i] = values[i * columns + j];
  return turned;
}

const dot = (a, i, b, j, n) => { let sum = 0; for (let c = 0; c < n; c++) sum += a[i + c] * b[j + c]; return sum; };
const addScaled = (a, i, factor, b, j, n) => { for (let c = 0; c < n; c++) a[i + c] += factor * b[j + c]; };

/** y = x W + b, or y = x W. */
function linear(tape, x, weight, bias) {
  const [n, k, m] = [x.rows, x.columns, weight.columns], y = new Matrix(n, m);
  if (bias) for (let i = 0; i < n * m; i++) y.values[i] = bias.values[i % m];
  addProduct(y.values, x.values, weight.values, [n, k, m]);
  tape.push(() => {
    addProduct(x.grad, y.grad, weight.values, [n, m, k], {turnedB: true}); // dx = dy Wᵀ
    addProduct(weight.grad, x.values, y.grad, [k, n, m], {turnedA: true}); // dW = xᵀ dy
    if (bias) for (let i = 0; i < n * m; i++) bias.grad[i % m] += y.grad[i];
  });
  return y;
}

/** y = x Eᵀ: the logits of all words, whose embeddings are the rows of E. */
function linearTransposed(tape, x, table) {
  const [n, k, m] = [x.rows, x.columns, table.rows], y = new Matrix(n, m);
  addProduct(y.values, x.values, table.values, [n, k, m], {turnedB: true});
  tape.push(() => {
    addProduct(x.grad, y.grad, table.values, [n, m, k]); // dx = dy E
    addProduct(table.grad, y.grad, x.values, [m, n, k], {turnedA: true}); // dE = dyᵀ x
  });
  return y;
}

/** y = √D E[id] + PE(position). */
function embedding(tape, table, ids, positions) {
  const width = table.columns, scale = Math.sqrt(width), y = new Matrix(ids.length, width);
  for (let i = 0; i < y.values.length; i++) {
    const row = Math.floor(i / width);
    y.values[i] = scale * table.values[ids[row] * width + i % width] + sinusoid(positions[row], i % width, width);
  }
  tape.push(() => {
    for (let i = 0; i < y.grad.length; i++) table.grad[ids[Math.floor(i / width)] * width + i % width] += scale * y.grad[i];
  });
  return y;
}

/** PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos(pos / 10000^(2i/D)); 0 where the position is null. */
function sinusoid(position, column, width) {
  const angle = position / 10000 ** ((column - column % 2) / width);
  return position === null ? 0 : column % 2 ? Math.cos(angle) : Math.sin(angle);
}

/** y = max(0, x). */
function relu(tape, x) {
  const y = new Matrix(x.rows, x.columns);
  for (let i = 0; i < x.values.length; i++) y.values[i] = Math.max(0, x.values[i]);
  tape.push(() => { for (let i = 0; i < x.grad.length; i++) if (x.values[i] > 0) x.grad[i] += y.grad[i]; });
  return y;
}

/** LayerNorm(x + y) = gain ⊙ n + bias, n = (z − mean) / √(variance + ε), z = x + y. */
function addNorm(tape, x, y, gain, bias, eps) {
  const {rows, columns: d} = x, result = new Matrix(rows, d), normal = new Float64Array(rows * d), factors = new Float64Array(rows);
  for (let row = 0; row < rows; row++) {
    let mean = 0, variance = 0;
    for (let i = row * d; i < (row + 1) * d; i++) mean += (x.values[i] + y.values[i]) / d;
    for (let i = row * d; i < (row + 1) * d; i++) variance += (x.values[i] + y.values[i] - mean) ** 2 / d;
    factors[row] = 1 / Math.sqrt(variance + eps);
    for (let i = row * d; i < (row + 1) * d; i++) {
      normal[i] = (x.values[i] + y.values[i] - mean) * factors[row];
      result.values[i] = gain.values[i % d] * normal[i] + bias.values[i % d];
    }
  }
  tape.push(() => {
    for (let row = 0; row < rows; row++) {
      let mean = 0, along = 0; // of dn = gain ⊙ dy, and of dn ⊙ n
      for (let i = row * d; i < (row + 1) * d; i++) {
        mean += gain.values[i % d] * result.grad[i] / d;
        along += gain.values[i % d] * result.grad[i] * normal[i] / d;
        gain.grad[i % d] += result.grad[i] * normal[i];
        bias.grad[i % d] += result.grad[i];
      }
      for (let i = row * d; i < (row + 1) * d; i++) {
        const dz = factors[row] * (gain.values[i % d] * result.grad[i] - mean - normal[i] * along);
        x.grad[i] += dz;
        y.grad[i] += dz;
      }
    }
  });
  return result;
}

/** Replace n numbers from the i-th on by their softmax. */
function softmax(x, i, n) {
  let greatest = -Infinity, sum = 0;
  for (let j = i; j < i + n; j++) greatest = Math.max(greatest, x[j]);
  for (let j = i; j < i + n; j++) sum += x[j] = Math.exp(x[j] - greatest);
  for (let j = i; j < i + n; j++) x[j] /= sum;
}

/** For each line and head: y = A V, A = softmax(scale · Q Kᵀ); with a causal mask, query i sees the keys 0 … i. A is returned, too. */
function attention(tape, q, k, v, {nLines, nHeads, scale, isCausal}) {
  const {columns} = q, width = columns / nHeads, [nQueries, nKeys] = [q.rows / nLines, k.rows / nLines];
  const y = new Matrix(q.rows, columns), weights = new Float64Array(nLines * nHeads * nQueries * nKeys), dA = new Float64Array(nKeys);
  const forEachQuery = (visit) => {
    for (let at = 0, row = 0; at < weights.length; at += nKeys, row++) { // rows of A: lines, then heads, then queries
      const query = row % nQueries, head = Math.floor(row / nQueries) % nHeads, line = Math.floor(row / nQueries / nHeads);
      const first = line * nKeys * columns + head * width; // number of the first key
      visit((line * nQueries + query) * columns + head * width, (key) => first + key * columns, at, isCausal ? query + 1 : nKeys);
    }
  };
  forEachQuery((query, key, at, n) => {
    for (let j = 0; j < n; j++) weights[at + j] = scale * dot(q.values, query, k.values, key(j), width);
    softmax(weights, at, n);
    for (let j = 0; j < n; j++) addScaled(y.values, query, weights[at + j], v.values, key(j), width);
  });
  tape.push(() => forEachQuery((query, key, at, n) => {
    let mean = 0; // Σ A ⊙ dA
    for (let j = 0; j < n; j++) {
      mean += weights[at + j] * (dA[j] = dot(y.grad, query, v.values, key(j), width));
      addScaled(v.grad, key(j), weights[at + j], y.grad, query, width);
    }
    for (let j = 0; j < n; j++) {
      const dScore = scale * weights[at + j] * (dA[j] - mean);
      addScaled(q.grad, query, dScore, k.values, key(j), width);
      addScaled(k.grad, key(j), dScore, q.values, query, width);
    }
  }));
  return {y, weights};
}

/** The mean of −Σ_w q_w log p_w over the rows, with p = softmax(logits); q is 1 − ε for the label and ε/(V − 1) for others. */
function crossEntropy(tape, logits, labels, smoothing) {
  const {rows, columns} = logits, p = logits.values.slice();
  const target = (i) => i % columns === labels[Math.floor(i / columns)] ? 1 - smoothing : smoothing / (columns - 1);
  let loss = 0;
  for (let row = 0; row < rows; row++) softmax(p, row * columns, columns);
  for (let i = 0; i < p.length; i++) if (target(i)) loss -= target(i) * Math.log(p[i]) / rows;
  tape.push(() => { for (let i = 0; i < p.length; i++) logits.grad[i] += (p[i] - target(i)) / rows; });
  return {loss, p, target};
}

/** Adam: m ← β₁ m + (1 − β₁) g; v ← β₂ v + (1 − β₂) g²; θ ← θ − α · m/(1 − β₁ᵗ) / (√(v/(1 − β₂ᵗ)) + ε). */
function adam({values, grad}, {m, v}, step, rate, {beta1, beta2, eps}) {
  for (let i = 0; i < values.length; i++) {
    m[i] = beta1 * m[i] + (1 - beta1) * grad[i];
    v[i] = beta2 * v[i] + (1 - beta2) * grad[i] ** 2;
    values[i] -= rate * m[i] / (1 - beta1 ** step) / (Math.sqrt(v[i] / (1 - beta2 ** step)) + eps);
  }
}
