// ---- the tokenizer: text to pieces and back, as sentencepiece does it

const BLANK = "▁", UNKNOWN = 0, START = 1, END = 2;
const CONTROL_TYPES = "23", BYTE_TYPE = "6"; // types of pieces in sentencepiece's files
const BETWEEN_WORDS = /[ \t\n\v\f\r\x1c-\x1f\x85\u2028\u2029]+/g;

/** Return the character of UTF-8 at a byte, and its length; U+FFFD for a byte that begins none. */
function characterAt(bytes, at) {
  const length = bytes[at] < 0x80 ? 1 : bytes[at] < 0xe0 ? 2 : bytes[at] < 0xf0 ? 3 : 4;
  try {
    return [new TextDecoder("utf-8", {fatal: true, ignoreBOM: true}).decode(bytes.subarray(at, at + length)), length];
  } catch {
    return ["\ufffd", 1];
  }
}

class Tokenizer {
  /** `types` has a digit for each piece; `rules` is sentencepiece's compiled table of replaced characters. */
  constructor({kind, pieces, scores, types, rules, spellsBytes}) {
    Object.assign(this, {kind, pieces, scores: Float32Array.from(scores), types, spellsBytes});
    const isText = (id) => !CONTROL_TYPES.includes(types[id]) && types[id] !== BYTE_TYPE;
    this.ids = new Map(pieces.map((piece, id) => [piece, id]).filter(([, id]) => isText(id)));
    this.byteIds = new Map(pieces.map((piece, id) => [piece, id]).filter(([, id]) => types[id] === BYTE_TYPE));
    this.longest = pieces.reduce((most, piece) => Math.max(most, piece.length), 1);
    const unknownScore = this.scores.reduce((least, score, id) => isText(id) ? Math.min(least, score) : least, 0) - 10;
    this.unknownScore = Math.fround(unknownScore);
    const bytes = toBytes(rules), nTrie = bytes.length ? new DataView(bytes.buffer).getUint32(0, true) : 0;
    this.trie = Uint32Array.from({length: nTrie / 4}, (_, i) => new DataView(bytes.buffer).getUint32(4 + 4 * i, true));
    this.replacements = bytes.subarray(4 + nTrie);
  }

  /** Return [{piece, id}]; a run of unknown characters is one piece, or one piece for each of its bytes. */
  encode(text) {
    const normal = this.normalise(text), found = [];
    for (const piece of this.kind === "bpe" ? this.merge(normal) : this.mostProbable(normal)) {
      const id = this.ids.get(piece) ?? UNKNOWN;
      if (id !== UNKNOWN) found.push({piece, id});
      else if (this.spellsBytes) {
        const names = Array.from(new TextEncoder().encode(piece), (byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`);
        found.push(...names.map((name) => ({piece: name, id: this.byteIds.get(name)})));
      } else if (found.at(-1)?.id === UNKNOWN) found.at(-1).piece += piece;
      else found.push({piece, id});
    }
    return found;
  }

  decode(ids) {
    const bytes = Uint8Array.from(ids.flatMap((id) => {
      if (this.types[id] === BYTE_TYPE) return [parseInt(this.pieces[id].slice(3, 5), 16)];
      return CONTROL_TYPES.includes(this.types[id]) ? [] : [...new TextEncoder().encode(this.pieces[id])];
    }));
    let text = "";
    for (let at = 0; at < bytes.length;) {
      const [character, length] = characterAt(bytes, at);
      text += character;
      at += length;
    }
    return text.replaceAll(BLANK, " ").replace(BETWEEN_WORDS, " ").replace(/^ +| +$/g, "");
  }

  /** Replace characters by the rules, join words by the mark of a blank, and begin with this mark. */
  normalise(text) {
    const bytes = new TextEncoder().encode(text);
    let normal = "", afterBlank = true;
    for (let at = 0; at < bytes.length;) {
      const [replaced, length] = this.replaced(bytes, at), kept = afterBlank ? replaced.replace(/^ +/, "") : replaced;
      if (kept) afterBlank = kept.endsWith(" ");
      normal += kept;
      at += length;
    }
    return (BLANK + normal.replaceAll(" ", BLANK)).replace(/▁+$/, "");
  }

  /** Return the replacement of the longest rule that fits at a byte, and the rule's length; else one character.
   *
   * The rules are a double-array trie. Source: darts.h of Darts-clone, the format of a unit. */
  replaced(bytes, at) {
    const {trie, replacements} = this, childOf = (node, unit) => node ^ ((unit >>> 10) << ((unit & 512) >>> 6));
    let node = trie.length ? childOf(0, trie[0]) : 0, found = -1, length = 0;
    for (let i = at; i < bytes.length && trie.length; i++) {
      node ^= bytes[i];
      const unit = trie[node];
      if ((unit & 0x800000ff) !== bytes[i]) break;
      node = childOf(node, unit);
      if (unit & 256) [found, length] = [trie[node] & 0x7fffffff, i + 1 - at];
    }
    if (found >= 0) return [new TextDecoder().decode(replacements.subarray(found, replacements.indexOf(0, found))), length];
    return characterAt(bytes, at);
  }

  /** BPE: merge the neighbours whose merged piece has the greatest score, as long as there are any. */
  merge(text) {
    const symbols = Array.from(text);
    for (;;) {
      let place = -1, best = -Infinity;
      for (let i = 0; i + 1 < symbols.length; i++) {
        const id = this.ids.get(symbols[i] + symbols[i + 1]);
        if (id !== undefined && this.scores[id] > best) [place, best] = [i, this.scores[id]];
      }
      if (place < 0) return symbols;
      symbols.splice(place, 2, symbols[place] + symbols[place + 1]);
    }
  }

  /** Unigram: return the segmentation with the greatest sum of scores (Viterbi), in float32 as sentencepiece. */
  mostProbable(text) {
    const characters = Array.from(text), sums = Array(characters.length + 1).fill(null), begins = [];
    sums[0] = 0;
    characters.forEach((character, begin) => {
      const consider = (end, score) => {
        const sum = Math.fround(sums[begin] + score);
        if (sums[end] === null || sum > sums[end]) [sums[end], begins[end]] = [sum, begin];
      };
      for (let end = begin + 1, piece = ""; end <= characters.length && piece.length < this.longest; end++) {
        piece += characters[end - 1];
        const id = this.ids.get(piece);
        if (id !== undefined) consider(end, this.scores[id]);
      }
      if (!this.ids.has(character)) consider(begin + 1, this.unknownScore);
    });
    const found = [];
    for (let end = characters.length; end > 0; end = begins[end]) found.unshift(characters.slice(begins[end], end).join(""));
    return found;
  }
}

/** Return the pieces as they are shown: without the mark of a blank, and with a dot before a piece within a word. */
function shownPieces(pieces) {
  return pieces.map((piece, i) => {
    if (piece.startsWith(BLANK)) return piece === BLANK ? piece : piece.slice(1);
    return i === 0 || pieces[i - 1] === BLANK ? piece : `·${piece}`;
  });
}
