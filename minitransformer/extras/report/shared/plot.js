// ---- numbers and ticks

/** Format a number with four significant digits, six from 1,000; a very large or small `size` asks for an exponent. */
function shown(value, size = Math.abs(value)) {
  if (value && (size < 1e-3 || size >= 1e6)) return value.toExponential(2).replace(/\.?0+e/, "e").replace("e+", "e");
  return value.toLocaleString("en", {maximumSignificantDigits: Math.abs(value) >= 1000 ? 6 : 4});
}

/** Return a function that formats the ticks of an axis, all with an exponent or none. */
function tickFormat(ticks) {
  const sizes = ticks.filter(Boolean).map(Math.abs), low = Math.min(...sizes), size = low < 1e-3 ? low : Math.max(...sizes);
  return (tick) => shown(tick, size);
}

/** Return round numbers between low and high, about n of them: multiples of 1, 2 or 5 times a power of ten. */
function linearTicks(low, high, n) {
  const rough = (high - low) / n, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => 1.5 * factor * power >= rough);
  const first = Math.ceil(low / step - 1e-9);
  return range(Math.floor(high / step + 1e-9) - first + 1).map((i) => Number(((first + i) * step).toPrecision(12)));
}

/** Return powers of ten between low and high, with multiples by 2 and 5 if they are few; linear ticks if at most two fit. */
function logTicks(low, high) {
  const powers = range(Math.ceil(Math.log10(high)) - Math.floor(Math.log10(low)) + 1).map((i) => i + Math.floor(Math.log10(low)));
  const every = Math.ceil(powers.length / 8), factors = powers.length > 4 ? [1] : [1, 2, 5];
  const found = powers.filter((_, i) => i % every === 0).flatMap((power) => factors.map((factor) => factor * 10 ** power));
  const within = found.filter((tick) => tick >= low * 0.999 && tick <= high * 1.001);
  return within.length > 2 ? within : linearTicks(low, high, 4);
}

/** Return a scale with ticks and their format; the scale maps values to the interval [begin, end]. */
function scaleOf(low, high, begin, end, isLog, nTicks) {
  const to = isLog ? Math.log10 : (value) => value;
  if (high <= low) [low, high] = isLog ? [low / 2, low * 2] : [low - (Math.abs(low) || 1) / 2, low + (Math.abs(low) || 1) / 2];
  const place = (value) => begin + (end - begin) * (to(value) - to(low)) / (to(high) - to(low));
  const ticks = isLog ? logTicks(low, high) : linearTicks(low, high, nTicks);
  return {place, ticks, format: tickFormat(ticks)};
}

/** Return the unit of shown training times, and the unit's length in seconds. */
function timeUnit(seconds) {
  return seconds < 180 ? ["seconds", 1] : seconds < 10800 ? ["minutes", 60] : ["hours", 3600];
}

// ---- one panel

const MARGIN = {left: 58, right: 26, top: 8, bottom: 38}; // right: half of the last label, such as 100,000

function drawing(name, attributes, parent, colour) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (colour) made.style.setProperty("--colour", colour);
  parent.append(made);
  return made;
}

/** Return the curves of a panel as lists of points, without points that the scale cannot show. */
function curvesOf(panel, xName, isLog) {
  return panel.curves.flatMap((ofRun, run) => ofRun.map((curve, series) => ({
    run: data.runs[run], kind: panel.names[series],
    points: (curve[xName] || []).map((x, i) => ({x, y: curve.values[i], step: curve.steps[i]})).filter(({y}) => !isLog || y > 0),
  }))).filter((curve) => curve.points.length);
}

/** Make a panel; it is drawn again when its width, its scale or the horizontal axis changes. */
function panelFigure(panel) {
  const svg = drawing("svg", {tabindex: 0, role: "img"}, document.createDocumentFragment());
  const reading = element("div", {className: "reading", hidden: true, role: "status"});
  const log = element("input", {type: "checkbox", checked: panel.scale === "log"});
  const key = panel.names.length > 1 ? `solid: ${panel.names[0]}, dashed with points: ${panel.names[1]}` : "";
  const figure = element("figure", {className: "panel"},
    element("figcaption", {}, element("h3", {textContent: panel.title}), element("span", {className: "unit", textContent: panel.unit}),
      element("label", {}, log, " log scale"), element("span", {className: "key", textContent: key})),
    svg, reading, element("p", {className: "note", textContent: panel.note}));
  let drawnWidth = 0;
  const redraw = () => { drawnWidth = svg.clientWidth; drawPanel(panel, svg, reading, log.checked); };
  log.addEventListener("change", redraw);
  new ResizeObserver(() => { if (svg.clientWidth !== drawnWidth) redraw(); }).observe(svg);
  return {figure, redraw};
}

function drawPanel(panel, svg, reading, isLog) {
  const width = svg.clientWidth, height = Math.max(190, Math.min(260, width * 0.55));
  if (!width) return;
  const xName = byId("controls").elements.x.value, curves = curvesOf(panel, xName, isLog);
  svg.replaceChildren();
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("height", height);
  svg.setAttribute("aria-label", summary(panel, curves));
  reading.hidden = true;
  if (!curves.length) return;
  const points = curves.flatMap((curve) => curve.points), xs = points.map(({x}) => x), ys = points.map(({y}) => y);
  const [unit, seconds] = xName === "seconds" ? timeUnit(greatest(xs)) : ["updates", 1];
  const low = isLog ? least(ys) : panel.fromZero ? Math.min(0, least(ys)) : least(ys);
  const x = scaleOf(0, greatest(xs) / seconds, MARGIN.left, width - MARGIN.right, false, width / 90);
  const y = scaleOf(low, Math.max(greatest(ys), panel.to ?? -Infinity), height - MARGIN.bottom, MARGIN.top, isLog, 5);
  drawAxes(svg, x, y, unit, width, height);
  const placed = curves.map((curve) => ({...curve, points: curve.points.map((point) => (
    {...point, left: x.place(point.x / seconds), top: y.place(point.y)}))}));
  for (const {run, kind, points} of placed) {
    drawing("path", {class: `curve ${kind}`, d: points.map(({left, top}, i) => `${i ? "L" : "M"}${left.toFixed(1)} ${top.toFixed(1)}`).join("")}, svg, run.colour);
    if (kind === "validation" || points.length === 1) {
      for (const {left, top} of points) drawing("circle", {class: "point", cx: left, cy: top, r: 2.6}, svg, run.colour);
    }
  }
  readOnHover(svg, reading, placed, height, (value) => `${shown(value / seconds)} ${unit}`, xName);
}

const least = (values) => values.reduce((a, b) => Math.min(a, b));
const greatest = (values) => values.reduce((a, b) => Math.max(a, b));

function drawAxes(svg, x, y, unit, width, height) {
  const bottom = height - MARGIN.bottom;
  for (const tick of y.ticks) {
    drawing("line", {class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: y.place(tick), y2: y.place(tick)}, svg);
    drawing("text", {x: MARGIN.left - 6, y: y.place(tick) + 4, "text-anchor": "end"}, svg).textContent = y.format(tick);
  }
  for (const tick of x.ticks) {
    drawing("line", {class: "grid", x1: x.place(tick), x2: x.place(tick), y1: bottom, y2: bottom + 4}, svg);
    drawing("text", {x: x.place(tick), y: bottom + 17, "text-anchor": "middle"}, svg).textContent = x.format(tick);
  }
  drawing("text", {x: (MARGIN.left + width - MARGIN.right) / 2, y: height - 5, "text-anchor": "middle"}, svg).textContent = unit;
}

/** Describe a panel for screen readers: where each curve begins and ends. */
function summary(panel, curves) {
  const parts = curves.map(({run, kind, points}) =>
    `${run.name}, ${kind}: ${shown(points[0].y)} at update ${points[0].step}, ${shown(points.at(-1).y)} at update ${points.at(-1).step}`);
  return `${panel.title} ${panel.unit}. ${parts.join("; ")}. Arrow keys read the values.`;
}

// ---- values at the position of the pointer, or at the position chosen by arrow keys

function nearest(points, left) {
  let [first, last] = [0, points.length - 1];
  while (last - first > 1) {
    const middle = (first + last) >> 1;
    if (points[middle].left < left) first = middle; else last = middle;
  }
  return Math.abs(points[first].left - left) <= Math.abs(points[last].left - left) ? points[first] : points[last];
}

function readOnHover(svg, reading, curves, height, xText, xName) {
  const stops = [...new Set(curves.flatMap(({points}) => points.map(({left}) => left)))].sort((a, b) => a - b);
  const marks = drawing("g", {}, svg);
  let stop = -1;
  const show = (left) => {
    const found = curves.map((curve) => ({...curve, point: nearest(curve.points, left)}));
    const {point} = found.reduce((a, b) => Math.abs(a.point.left - left) <= Math.abs(b.point.left - left) ? a : b);
    stop = stops.indexOf(point.left);
    marks.replaceChildren();
    drawing("line", {class: "cursor", x1: point.left, x2: point.left, y1: MARGIN.top, y2: height - MARGIN.bottom}, marks);
    reading.replaceChildren(element("p", {textContent: xName === "seconds" ? `${xText(point.x)}, update ${shown(point.step)}` : `update ${shown(point.step)}`}));
    for (const {run, kind, point: {left, top, y, step}} of found) {
      drawing("circle", {class: "ring", cx: left, cy: top, r: 4}, marks, run.colour);
      const swatch = element("span", {className: "swatch"}), at = step === point.step ? "" : ` (update ${shown(step)})`;
      swatch.style.setProperty("--colour", run.colour);
      const whose = [data.runs.length > 1 ? run.name : "", curves.length > data.runs.length || data.runs.length === 1 ? kind : ""];
      reading.append(element("p", {}, swatch, `${whose.filter(Boolean).join(", ")} ${shown(y)}${at}`));
    }
    reading.hidden = false;
    const isRight = point.left > svg.clientWidth / 2;
    reading.style.setProperty("left", isRight ? "auto" : `${point.left + 24}px`);
    reading.style.setProperty("right", isRight ? `${svg.clientWidth - point.left + 24}px` : "auto");
    reading.style.setProperty("top", `${svg.getBoundingClientRect().top - svg.parentElement.getBoundingClientRect().top + 10}px`);
  };
  const hide = () => { marks.replaceChildren(); reading.hidden = true; stop = -1; };
  svg.onpointermove = svg.onpointerdown = (event) => show(event.clientX - svg.getBoundingClientRect().left);
  svg.onblur = hide;
  svg.onpointerleave = ({pointerType}) => { if (pointerType !== "touch") hide(); }; // a finger that reads is lifted
  svg.onkeydown = (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const target = {ArrowRight: stop + 1, ArrowLeft: stop < 0 ? stops.length - 1 : stop - 1, Home: 0, End: stops.length - 1}[event.key];
    if (event.key === "Escape") hide();
    if (target === undefined || !(target in stops)) return;
    event.preventDefault();
    show(stops[target]);
  };
}
