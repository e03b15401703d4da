// ---- the tree of a search: a column for each step, the most probable hypothesis on top

const COLUMN = 92, ROW = 34, NODE = 72, MIDDLE = 13; // pixels

const fixed = (x) => x.toFixed(2).replace("-", "−").replace(/^−(0\.0*)$/, "$1");

/** Return a hypothesis and those that it continues, the newest first, without the start. */
function pathTo(hypothesis) {
  const path = [];
  for (let one = hypothesis; one?.parent; one = one.parent) path.push(one);
  return path;
}

/** Draw `nShown` steps; the path to a hypothesis is marked, and the hypothesis is explained. */
function drawTree(steps, nShown, chosen) {
  const path = pathTo(chosen), rows = Math.max(1, ...steps.map((step) => step.length));
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("width", COLUMN * (nShown + 1));
  svg.setAttribute("height", ROW * rows);
  svg.setAttribute("aria-hidden", "true");
  const top = (one) => one.parent ? ROW * steps[one.step - 1].indexOf(one) : 0;
  const start = element("span", {className: "start", textContent: data.marks[0]});
  const nodes = steps.slice(0, nShown).flat().map((one) => {
    const isChosen = path.includes(one), x = COLUMN * one.step, [y, z] = [top(one.parent) + MIDDLE, top(one) + MIDDLE];
    const edge = document.createElementNS("http://www.w3.org/2000/svg", "path");
    edge.setAttribute("d", `M${x - COLUMN + NODE} ${y}C${x - 9} ${y} ${x - COLUMN + NODE + 9} ${z} ${x} ${z}`);
    edge.setAttribute("class", `${one.fate} ${isChosen ? "chosen" : ""}`);
    edge.style.setProperty("--width", `${1 + 3 * Math.exp(one.tokenLogP)}px`);
    if (isChosen) svg.append(edge); else svg.prepend(edge);
    return nodeButton(one, isChosen, one === chosen, x, top(one));
  });
  const isFocused = byId("tree").contains(document.activeElement);
  byId("tree").replaceChildren(svg, start, ...nodes);
  const pressed = byId("tree").querySelector("[aria-pressed=true]");
  (pressed ?? nodes[0])?.setAttribute("tabindex", 0);
  if (isFocused) pressed?.focus();
  byId("why").textContent = chosen?.parent && chosen.step <= nShown ? explanation(chosen) : "Choose a hypothesis to see why it was kept or cut.";
}

function nodeButton(one, isChosen, isPressed, left, top) {
  const button = element("button", {
    type: "button", tabIndex: -1, textContent: shownToken(one.token), title: explanation(one), ariaPressed: String(isPressed),
    className: `${one.fate} ${isChosen ? "chosen" : ""}`,
  });
  button.style.setProperty("left", `${left}px`);
  button.style.setProperty("top", `${top}px`);
  button.addEventListener("click", () => change({selected: one}));
  return button;
}

/** Say what a hypothesis is, its numbers, and what became of it. */
function explanation(one) {
  const text = targetTokenizer.decode(idsOf(one.parent)) || data.marks[0], piece = shownToken(one.token);
  const p = `“${piece}” after “${text}”: p = ${(100 * Math.exp(one.tokenLogP)).toFixed(1)} %, sum of log p ${fixed(one.logP)}.`;
  const score = one.penalty && `score ${fixed(one.score)} = ${fixed(one.logP)} ÷ ${fixed(one.penalty)}`;
  const fates = {
    kept: () => "Kept: it is among the best that go on.",
    cut: () => `Cut: the last one that goes on has ${fixed(one.least)}.`,
    ended: () => `Ended: the best translation, with ${score}.`,
    worse: () => `Ended with ${score}; another translation has a better score.`,
    left: () => `Left: even at the greatest length its score would be ${fixed(one.bound)}, and the best translation has ${fixed(one.worst)}.`,
  };
  return `${p} ${fates[one.fate]()}`;
}

/** Return the hypothesis to which an arrow key leads: up and down in a step, back to the parent, on to a continuation. */
function neighbour(steps, one, key) {
  const step = steps[one.step - 1], place = step.indexOf(one);
  return {
    ArrowUp: () => step[place - 1], ArrowDown: () => step[place + 1], ArrowLeft: () => one.parent.parent && one.parent,
    ArrowRight: () => steps[one.step]?.find(({parent}) => parent === one), Home: () => steps[0][0], End: () => steps.at(-1)[0],
  }[key]?.();
}
