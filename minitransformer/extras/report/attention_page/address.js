// ---- the address: it stores the view, so that a link restores it

const isSwitch = (value) => ["on", "off"].includes(value);
const isUpTo = (n) => (value) => /^\d+$/.test(value) && value >= 1 && value <= n;

/** Read the view from the address's fragment, else from its query; report invalid values and use defaults instead. */
function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1) || location.search), known = [], problems = [];
  const read = (name, isValid, expected) => {
    known.push(name);
    const value = given.get(name);
    if (value === null || isValid(value)) return value;
    problems.push(`${name} is ${quoted(value)}, but must be ${expected}`);
    return null;
  };
  const kinds = Object.keys(KIND_NAMES);
  state.kind = read("kind", (kind) => kinds.includes(kind), `one of ${kinds.join(", ")}`) ?? "encoder-decoder";
  const nLayers = kindData().layers;
  state.layer = (read("layer", isUpTo(nLayers), `a number from 1 to ${nLayers}`) ?? nLayers) - 1;
  const heads = read(
    "heads", (list) => list === "" || list.split(",").every(isUpTo(nHeads)), `numbers from 1 to ${nHeads} with commas`);
  state.heads = new Set(heads === null ? range(nHeads) : heads.split(",").filter(Boolean).map((number) => number - 1));
  state.end = read("end", isSwitch, "on or off") !== "off";
  state.merge = read("merge", isSwitch, "on or off") === "on";
  const least = read("least", (value) => LEAST.map(String).includes(value), `one of ${LEAST.join(", ")}`);
  state.least = least === null ? null : Number(least);
  const {queries, keys} = shown();
  const exists = (word) => isUpTo((word[0] === "q" ? queries : keys).length)(word.slice(1)) && "qk".includes(word[0]);
  const word = read("word", exists, `q1 to q${queries.length} or k1 to k${keys.length}`);
  state.word = word && {side: word[0], place: word.slice(1) - 1};
  for (const name of given.keys()) if (!known.includes(name)) problems.push(`${quoted(name)} is not a known name`);
  byId("problem").textContent =
    problems.length ? `The address is wrong: ${problems.join("; ")}. The page shows the default instead.` : "";
}

/** Isolate a text from the text direction around it. */
const isolated = (text) => `\u2068${text}\u2069`;
const quoted = (text) => `“${isolated(text)}”`;

function writeAddress() {
  const parts = [`kind=${state.kind}`, `layer=${state.layer + 1}`];
  if (state.heads.size < nHeads) parts.push(`heads=${chosenHeads().map((head) => head + 1)}`);
  if (state.word) parts.push(`word=${state.word.side}${state.word.place + 1}`);
  if (!state.end) parts.push("end=off");
  if (state.merge) parts.push("merge=on");
  if (state.least !== null) parts.push(`least=${state.least}`);
  history.replaceState(null, "", `#${parts.join("&")}`);
  byId("problem").textContent = "";
}
