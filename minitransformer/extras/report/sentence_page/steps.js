// ---- the steps of the model

const template = (name, value) => document.querySelector(`template[data-${name}="${value}"]`);

function buildBlocks() {
  byId("blocks").append(...data.blocks.map((block, b) => {
    const button = element("button", {type: "button", textContent: block.name});
    button.addEventListener("click", () => change({step: steps.findIndex((step) => step.block === b)}));
    return element("li", {className: block.name.split(" ")[0]}, button);
  }));
  byId("head").append(element("span", {className: "note", textContent: "head"}), ...data.colours.map((shade, head) => {
    const button = element("button", {type: "button", textContent: head + 1});
    button.style.setProperty("--colour", shade);
    button.addEventListener("click", () => change({head}));
    return button;
  }));
  byId("back").addEventListener("click", () => change({step: state.step - 1}));
  byId("next").addEventListener("click", () => change({step: state.step + 1}));
  document.addEventListener("keydown", (event) => {
    const {target} = event, isScrolled = target.matches(".scroll") && target.scrollWidth > target.clientWidth;
    if (event.altKey || event.ctrlKey || event.metaKey || isScrolled || target.matches("input") || !byId("steps").offsetParent) return;
    if (event.key === "ArrowRight") change({step: state.step + 1});
    if (event.key === "ArrowLeft") change({step: state.step - 1});
  });
}

function drawWay(step) {
  for (const [b, item] of [...byId("blocks").children].entries()) item.firstChild.setAttribute("aria-current", b === step.block ? "step" : "false");
  byId("blocks").children[step.block].scrollIntoView({block: "nearest", inline: "nearest"});
  replaceChildren(byId("steps"), steps.map((each, number) => [each, number]).filter(([each]) => each.block === step.block).map(([each, number]) => {
    const {title, short} = template("kind", each.kind).dataset;
    const button = element("button", {type: "button", textContent: short ?? title});
    button.setAttribute("aria-current", number === state.step ? "step" : "false");
    button.addEventListener("click", () => change({step: number}));
    return element("li", {className: each.attention ?? ""}, button);
  }));
  byId("back").disabled = state.step === 0;
  byId("next").disabled = state.step === steps.length - 1;
  byId("place").textContent = `${state.step + 1} of ${steps.length}`;
}

function drawExplanation(step) {
  const found = template("kind", step.kind), kind = step.attention && template("attention", step.attention);
  const where = data.blocks[step.block].name.replace(/^(.)/, (letter) => letter.toUpperCase());
  byId("title").textContent = found.dataset.title;
  byId("shape").textContent = kind ? `${where}, ${kind.dataset.name}` : where;
  const content = found.content.cloneNode(true), equation = content.querySelector("math");
  byId("equation").replaceChildren(...(equation ? [equation] : []));
  byId("text").replaceChildren(content);
  if (kind && ["projections", "scores"].includes(step.kind)) byId("text").append(kind.content.cloneNode(true));
}

function draw() {
  const step = steps[state.step];
  drawWay(step);
  drawExplanation(step);
  byId("head").hidden = !hasHeads(step);
  for (const [head, button] of [...byId("head").querySelectorAll("button")].entries()) button.setAttribute("aria-pressed", head === state.head);
  byId("number").textContent = "";
  const extra = step.pieces ? [piecesElement(data.pieces[step.pieces])] : step.kind === "prediction" ? [predictionElement()] : [];
  replaceChildren(byId("figures"), [...extra, ...step.figures.map(figureElement)]);
}

/** Show the numbers of a sentence; the first time, build the steps and read the view from the address. */
function show(given) {
  const isFirst = !steps.length;
  data = given;
  steps = data.blocks.flatMap((block, b) => block.steps.map((step) => ({...step, block: b})));
  if (isFirst) {
    buildBlocks();
    readAddress();
    addEventListener("hashchange", () => { readAddress(); draw(); });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  }
  draw();
}
