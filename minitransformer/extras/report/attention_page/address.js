// ---- the address: it stores the view, so that a link restores it

const isUpTo = (n) => (value) => /^\d+$/.test(value) && value >= 1 && value <= n;

/** Read the view from the address's fragment, else from its query; an invalid value is replaced by the default. */
function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1) || location.search);
  const read = (name, isValid, otherwise) => given.has(name) && isValid(given.get(name)) ? given.get(name) : otherwise;
  state.kind = read("kind", (kind) => Object.hasOwn(KIND_NAMES, kind), "encoder-decoder");
  const nLayers = kindData().layers;
  state.layer = read("layer", isUpTo(nLayers), nLayers) - 1;
  const heads = read("heads", (list) => list === "" || list.split(",").every(isUpTo(nHeads)), null);
  state.heads = new Set(heads === null ? range(nHeads) : heads.split(",").filter(Boolean).map((number) => number - 1));
  state.end = given.get("end") !== "off";
  state.merge = given.get("merge") === "on";
  const least = read("least", (value) => LEAST.map(String).includes(value), null);
  state.least = least === null ? null : Number(least);
  const {queries, keys} = shown();
  const exists = (word) => isUpTo((word[0] === "q" ? queries : keys).length)(word.slice(1)) && "qk".includes(word[0]);
  const word = read("word", exists, null);
  state.word = word && {side: word[0], place: word.slice(1) - 1};
}

/** Isolate a text from the text direction around it. */
const isolated = (text) => `\u2068${text}\u2069`;

function writeAddress() {
  const parts = [`kind=${state.kind}`, `layer=${state.layer + 1}`];
  if (state.heads.size < nHeads) parts.push(`heads=${chosenHeads().map((head) => head + 1)}`);
  if (state.word) parts.push(`word=${state.word.side}${state.word.place + 1}`);
  if (!state.end) parts.push("end=off");
  if (state.merge) parts.push("merge=on");
  if (state.least !== null) parts.push(`least=${state.least}`);
  history.replaceState(null, "", `#${parts.join("&")}`);
}
