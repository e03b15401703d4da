// ---- the state of the page: the indices of a step, a head and a row; the address stores them

let steps = [];
const state = {step: 0, head: 0, row: 0};

function readAddress() {
  const found = new URLSearchParams(location.hash.slice(1));
  const number = (name, below) => {
    const n = Number(found.get(name)) - 1;
    return Number.isInteger(n) && n >= 0 && n < below ? n : 0;
  };
  state.step = number("step", steps.length);
  state.head = number("head", data.colours.length);
  state.row = number("row", 1e6);
}

function change(changes) {
  Object.assign(state, changes);
  state.step = Math.max(0, Math.min(steps.length - 1, state.step));
  history.replaceState(null, "", `#step=${state.step + 1}&head=${state.head + 1}&row=${state.row + 1}`);
  draw();
}

// ---- the numbers

/** Return an array as {shape, values, greatest}; the values of forbidden keys are −∞. A page that computes has its values. */
function matrix(name) {
  const array = data.arrays[name];
  if (!array.values) {
    const bytes = toBytes(array.steps), view = new DataView(bytes.buffer);
    array.values = Float32Array.from({length: bytes.length / 2}, (_, i) => {
      const step = view.getInt16(2 * i, true);
      return step === -32768 ? -Infinity : step / 32767 * array.greatest;
    });
  }
  return array;
}

/** Return the matrix of the chosen head; if a figure has no heads, return its only matrix. */
function sheet(figure) {
  const {shape, values, greatest} = matrix(figure.array);
  const [rows, columns] = shape.slice(-2);
  const start = shape.length === 3 ? state.head * rows * columns : 0;
  return {rows, columns, greatest, values: values.subarray(start, start + rows * columns)};
}

const hasHeads = (step) => step.figures.some((figure) => data.arrays[figure.array].shape.length === 3);

function shownNumber(x) {
  if (!Number.isFinite(x)) return "−∞";
  const text = Math.abs(x) >= 100 ? x.toFixed(0) : Math.abs(x) >= 10 ? x.toFixed(1) : x.toFixed(2);
  return text.replace("-", "−").replace(/^−(0\.?0*)$/, "$1");
}
