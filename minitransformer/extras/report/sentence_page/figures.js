// ---- figures: numbers as colours

function colour(name) {
  const text = getComputedStyle(byId("figures")).getPropertyValue(name).trim();
  return [1, 3, 5].map((i) => parseInt(text.slice(i, i + 2), 16));
}

/** Return a number's strength of colour, from 0 to 1; weak colours are strengthened, so that they can be seen. */
const strength = (x, greatest) => Math.min(1, Math.abs(x) / greatest) ** 0.7;

/** Make a button that chooses a row. */
function rowButton(text, row, chosen = state.row) {
  const button = element("button", {type: "button", textContent: text, ariaPressed: String(row === chosen)});
  button.addEventListener("click", () => change({row}));
  return button;
}

function rowLabels(figure) {
  return element("ol", {className: "rows"}, ...data.labels[figure.rows].map((text, row) => element("li", {}, rowButton(text, row))));
}

function readingOf(figure, row, column, x) {
  const label = data.labels[figure.rows][row];
  const place = figure.columns ? `“${label}” → “${data.labels[figure.columns][column]}”` : `“${label}”, number ${column + 1}`;
  byId("number").textContent = `${figure.title}, ${place}: ${shownNumber(x)}`;
}

/** Draw a matrix on a stretched canvas, with one pixel for each number. */
function heat(figure) {
  const {rows, columns, greatest, values} = sheet(figure);
  const canvas = element("canvas", {width: columns, height: rows});
  canvas.style.setProperty("--columns", columns);
  canvas.style.setProperty("--rows", rows);
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `${figure.title}: ${rows} rows of ${columns} numbers`);
  const context = canvas.getContext("2d"), image = context.createImageData(columns, rows);
  const [paper, positive, negative] = ["--zero", "--positive", "--negative"].map(colour);
  values.forEach((x, i) => {
    const share = strength(x, greatest), end = x < 0 ? negative : positive;
    for (const c of range(3)) image.data[4 * i + c] = paper[c] + (end[c] - paper[c]) * share;
    image.data[4 * i + 3] = 255;
  });
  context.putImageData(image, 0, 0);
  canvas.onpointermove = canvas.onpointerdown = (event) => { // a finger that taps does not move
    const box = canvas.getBoundingClientRect();
    const row = Math.min(rows - 1, Math.floor((event.clientY - box.top) / box.height * rows));
    const column = Math.min(columns - 1, Math.floor((event.clientX - box.left) / box.width * columns));
    if (row >= 0 && column >= 0) readingOf(figure, row, column, values[row * columns + column]);
  };
  return element("div", {className: "heat"}, rowLabels(figure), element("div", {className: "scroll", tabIndex: 0}, canvas));
}

/** Make a table of the numbers between two sequences of words. */
function table(figure) {
  const {rows, columns, greatest, values} = sheet(figure);
  const head = element("tr", {}, element("td"), ...data.labels[figure.columns].map((text) => {
    return element("th", {scope: "col"}, element("span", {textContent: text}));
  }));
  const body = range(rows).map((row) => {
    const label = rowButton(data.labels[figure.rows][row], row);
    return element("tr", {}, element("th", {scope: "row"}, label), ...range(columns).map((column) => {
      const x = values[row * columns + column], forbidden = !Number.isFinite(x);
      const cell = element("td", {textContent: shownNumber(x), className: forbidden ? "forbidden" : x < 0 ? "negative" : ""});
      cell.style.setProperty("--share", forbidden ? 0 : strength(x, greatest).toFixed(3));
      cell.addEventListener("pointerenter", () => readingOf(figure, row, column, x));
      return cell;
    }));
  });
  const classes = columns > 16 ? "words dense" : "words";
  return element("div", {className: "scroll", tabIndex: 0}, element("table", {className: classes}, element("thead", {}, head), element("tbody", {}, ...body)));
}

function figureElement(figure) {
  const {rows, columns} = sheet(figure);
  const title = element("figcaption", {}, element("b", {textContent: figure.title}), ` ${rows} × ${columns}`);
  return element("figure", {}, title, figure.columns ? table(figure) : heat(figure));
}

function piecesElement(pieces) {
  return element("ol", {className: "pieces"}, ...pieces.map(({piece, id}) => {
    return element("li", {}, element("span", {className: "piece", textContent: piece}), element("span", {className: "id", textContent: id}));
  }));
}

function predictionElement() {
  const {places, labels: {target: inputs}} = data;
  const place = Math.min(state.row, places.length - 1);
  const chosen = (i) => places[i].find((word) => word.chosen).piece;
  const line = element("ol", {className: "places"}, ...inputs.map((_, row) => element("li", {}, rowButton(chosen(row), row, place))));
  const read = element("p", {className: "note", textContent: `after “${inputs.slice(0, place + 1).join(" ")}”`});
  const bars = element("table", {className: "bars"}, ...places[place].map(({piece, logit, p, chosen}) => {
    const bar = element("span", {className: "bar"});
    bar.style.setProperty("--share", p);
    const percent = p >= 0.0005 ? `${(100 * p).toFixed(1)} %` : "< 0.05 %";
    return element("tr", {className: chosen ? "chosen" : ""}, element("th", {scope: "row", textContent: piece}), element("td", {}, bar),
      element("td", {className: "number", textContent: percent}), element("td", {className: "number faint", textContent: shownNumber(logit)}));
  }));
  return element("div", {}, line, read, bars);
}
