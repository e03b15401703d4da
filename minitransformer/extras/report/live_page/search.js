// ---- beam search, as minitransformer/inference/beam_steps.py does it, with a note of every hypothesis

const FIRST_EXTRA = 50, MOST_EXTRA = 256; // tokens by which a translation may exceed its source, first and in the end
const MOST_FINISHED = 16; // times nBest: the most finished hypotheses that are searched for different texts

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

/** Search translations of ids; settings are beam, alpha, normalisation, temperature.
 *
 * Returns {finished, steps}: finished hypotheses, best first, and for each step all that were considered. A hypothesis is
 * {token, parent, tokenLogP, logP, step, fate, why}; a finished one also has score and ids. */
function beamSearch(model, ids, settings, nFinished, extra) {
  const {beam, temperature} = settings, {positions, max_positions: rows, first_position: first, source_end: hasEnd} = model.config;
  const longest = Math.min(ids.length + extra, 6 * ids.length + 20, positions === "learned" ? rows - first : Infinity);
  const memory = model.encode(hasEnd ? [...ids, END] : ids), nCandidates = beam > 1 ? 2 * beam : 1, steps = [];
  const lastPenalty = lengthPenalty(longest, settings);
  let live = [{token: START, parent: null, logP: 0, step: 0, fate: "kept", state: model.begin()}], finished = [];
  for (let step = 1; step <= longest && live.length; step++) {
    const decoded = model.decode(live.map(({state}) => state), live.map(({token}) => token), memory);
    const isAllowed = step === longest ? (id) => id === END : (id) => id !== UNKNOWN && id !== START;
    const all = live.flatMap((parent, i) => {
      const logP = logProbabilities(model, decoded[i], temperature);
      return best(logP, nCandidates, isAllowed).map((token) => ({token, parent, tokenLogP: logP[token], logP: parent.logP + logP[token], step}));
    });
    const candidates = all.sort((a, b) => b.logP - a.logP).slice(0, nCandidates);
    steps.push(candidates);
    for (const ended of candidates.filter(({token}) => token === END)) {
      Object.assign(ended, {fate: "ended", penalty: lengthPenalty(step, settings), ids: idsOf(ended.parent), isCut: step >= longest});
      ended.score = ended.logP / ended.penalty;
      finished.push(ended);
    }
    finished = finished.sort((a, b) => b.score - a.score);
    finished.slice(nFinished).forEach((lost) => { lost.fate = "worse"; });
    finished = finished.slice(0, nFinished);
    const goingOn = candidates.filter(({token}) => token !== END), parents = live;
    live = goingOn.slice(0, beam);
    live.forEach((one) => { one.fate = "kept"; });
    goingOn.slice(beam).forEach((cut) => Object.assign(cut, {fate: "cut", least: live.at(-1).logP}));
    const bound = live.length ? live[0].logP / lastPenalty : -Infinity, least = finished[nFinished - 1]?.score ?? -Infinity;
    if (!(bound > least)) {
      live.forEach((one) => Object.assign(one, {fate: "left", bound: one.logP / lastPenalty, least}));
      break;
    }
    live.forEach((one) => { one.state = one.parent.state.map(({keys, values}) => ({keys: [...keys], values: [...values]})); });
    parents.forEach((one) => { delete one.state; });
  }
  return {finished, steps};
}

/** Return the tokens of a hypothesis, without the start symbol. */
function idsOf(hypothesis) {
  const ids = [];
  for (let one = hypothesis; one.parent; one = one.parent) ids.unshift(one.token);
  return ids;
}

/** Search nBest translations with different texts; search again, as the command does, if there are too few or one is cut. */
function translate(model, tokenizer, ids, settings, nBest) {
  if (!ids.length) return {translations: [], steps: []};
  for (let n = nBest, extra = FIRST_EXTRA; ; n *= Math.min(2, nBest), extra = MOST_EXTRA) {
    const {finished, steps} = beamSearch(model, ids, settings, n, extra), texts = finished.map((one) => tokenizer.decode(one.ids));
    const translations = finished.filter((_, i) => texts.indexOf(texts[i]) === i).slice(0, nBest);
    const wantsMore = translations.length < nBest && finished.length === n && n * 2 <= MOST_FINISHED * nBest && nBest > 1;
    if (!wantsMore && !(extra < MOST_EXTRA && translations.some(({isCut}) => isCut))) {
      return {translations: translations.map((one) => ({...one, text: tokenizer.decode(one.ids), end: one})), steps};
    }
  }
}

/** Return the numbers of the forward pass for a source and a translation: {name: rows}, and log p rows of next tokens. */
function recordNumbers(model, ids, target) {
  const rows = {}, record = (name, row) => { (rows[name] ??= []).push(row); };
  const memory = model.encode([...ids, END], record), state = model.begin();
  const logits = [START, ...target].map((token) => model.logits(model.decode([state], [token], memory, record)[0]));
  return {rows, logits};
}
