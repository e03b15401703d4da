// ---- beam search, as minitransformer/inference/beam_steps.py does it, with a note of every hypothesis

const FIRST_EXTRA = 50, MOST_EXTRA = 256; // tokens by which a translation may exceed its source, first and in the end

const lengthPenalty = (length, {alpha, normalisation}) => (normalisation === "length" ? length : (5 + length) / 6) ** alpha;

/** Return log p of each token after a row of the decoder's result; the temperature divides the logits. */
function logProbabilities(model, row, temperature) {
  const logits = model.logits(row).map((x) => x / temperature);
  const greatest = logits.reduce((a, b) => Math.max(a, b), -Infinity);
  const log = greatest + Math.log(logits.reduce((sum, x) => sum + Math.exp(x - greatest), 0));
  return logits.map((x) => x - log);
}

/** Return the ids of the n greatest numbers that are allowed, greatest first; of equal ones, the least id first. */
function best(values, n, isAllowed) {
  const found = [];
  for (let id = 0; id < values.length; id++) {
    if (!isAllowed(id) || !(values[id] > -Infinity) || (found.length === n && values[id] <= values[found[n - 1]])) continue;
    let place = found.length;
    while (place && values[id] > values[found[place - 1]]) place--;
    found.splice(place, 0, id);
    if (found.length > n) found.pop();
  }
  return found;
}

/** Search the best translation of ids; settings are beam, alpha, normalisation, temperature.
 *
 * Returns {found, steps}: the translation, and for each step all hypotheses that were considered, the most probable first.
 * A hypothesis is {token, parent, tokenLogP, logP, step, fate}; one that has ended also has penalty, score and ids. */
function beamSearch(model, ids, settings, extra) {
  const {beam, temperature} = settings, {positions, max_positions: rows, first_position: first} = model.config;
  const longest = Math.min(ids.length + extra, 6 * ids.length + 20, positions === "learned" ? rows - first : Infinity);
  const memory = model.encode([...ids, END]), nCandidates = beam > 1 ? 2 * beam : 1, steps = [];
  const lastPenalty = lengthPenalty(longest, settings);
  let live = [{token: START, parent: null, logP: 0, step: 0, state: model.begin()}], found = null;
  for (let step = 1; live.length; step++) {
    const decoded = model.decode(live.map(({state}) => state), live.map(({token}) => token), memory);
    const isAllowed = step === longest ? (id) => id === END : (id) => id !== UNKNOWN && id !== START;
    const candidates = live.flatMap((parent, i) => {
      const logP = logProbabilities(model, decoded[i], temperature);
      return best(logP, nCandidates, isAllowed).map((token) => ({token, parent, tokenLogP: logP[token], logP: parent.logP + logP[token], step}));
    }).sort((a, b) => b.logP - a.logP).slice(0, nCandidates);
    steps.push(candidates);
    for (const ended of candidates.filter(({token}) => token === END)) {
      const penalty = lengthPenalty(step, settings), isBest = !found || ended.logP / penalty > found.score;
      Object.assign(ended, {fate: isBest ? "ended" : "worse", penalty, score: ended.logP / penalty, ids: idsOf(ended.parent), isCut: step >= longest});
      if (!isBest) continue;
      if (found) found.fate = "worse";
      found = ended;
    }
    const others = candidates.filter(({token}) => token !== END), parents = live;
    live = others.slice(0, beam);
    others.slice(beam).forEach((cut) => Object.assign(cut, {fate: "cut", least: live.at(-1).logP}));
    const canWin = live.length && step < longest && live[0].logP / lastPenalty > (found?.score ?? -Infinity);
    for (const one of live) {
      if (!canWin) Object.assign(one, {fate: "left", bound: one.logP / lastPenalty, worst: found.score});
      else Object.assign(one, {fate: "kept", state: one.parent.state.map(({keys, values}) => ({keys: [...keys], values: [...values]}))});
    }
    if (!canWin) break;
    parents.forEach((one) => { delete one.state; });
  }
  return {found, steps};
}

/** Return the tokens of a hypothesis, without the start symbol. */
function idsOf(hypothesis) {
  const ids = [];
  for (let one = hypothesis; one.parent; one = one.parent) ids.unshift(one.token);
  return ids;
}

/** Return the translations of ids that a search has met, best first, with different texts, and the steps of the search. */
function translate(model, tokenizer, ids, settings) {
  if (!ids.length) return {translations: [], steps: []};
  let {found, steps} = beamSearch(model, ids, settings, FIRST_EXTRA);
  if (found.isCut) ({steps} = beamSearch(model, ids, settings, MOST_EXTRA));
  const ended = steps.flat().filter(({score}) => score !== undefined).sort((a, b) => b.score - a.score);
  ended.forEach((one) => { one.text = tokenizer.decode(one.ids); });
  return {translations: ended.filter((one, i) => ended.findIndex(({text}) => text === one.text) === i), steps};
}

/** Return the numbers of the forward pass for a source and a translation: {name: rows}, and log p rows of next tokens. */
function recordNumbers(model, ids, target) {
  const rows = {}, record = (name, row) => { (rows[name] ??= []).push(row); };
  const memory = model.encode([...ids, END], record), state = model.begin();
  const logits = [START, ...target].map((token) => model.logits(model.decode([state], [token], memory, record)[0]));
  return {rows, logits};
}
