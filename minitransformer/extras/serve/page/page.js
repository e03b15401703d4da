"use strict";

const PAUSE = 600; // milliseconds without typing, after which the text is translated
const UNSPACED = String.raw`\p{sc=Han}\p{sc=Hira}\p{sc=Kana}ー\p{sc=Thai}\p{sc=Lao}\p{sc=Khmr}\p{sc=Mymr}`;
/** A word, or a character of a script without blanks between words, with the punctuation behind it. */
const WORD = new RegExp(String.raw`[${UNSPACED}]\p{M}*[^\p{L}\p{N} ]*|[^ ${UNSPACED}]+`, "gu");
const byId = (id) => document.getElementById(id);
const alternatives = Number(document.body.dataset.alternatives);
const targetOptions = [...byId("target").options];
const names = Object.fromEntries([...document.querySelectorAll("option")].map(({value, textContent}) => [value, textContent]));
let timer = null, running = null, shownText = null;

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

/** Send fields as JSON; return the answer's, or throw an Error with its message. */
async function ask(path, fields, signal) {
  const response = await fetch(path, {
    method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(fields), signal,
  });
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(answer.error || `the server answered with status ${response.status}`);
  return answer;
}

// ---- translating

async function translate() {
  clearTimeout(timer);
  const text = byId("text").value, lines = text.split(/\r?\n/).map((line) => line.trim()).filter(Boolean);
  running?.abort();
  const mine = running = new AbortController(), source = byId("source").value, target = byId("target").value;
  byId("error").textContent = "";
  if (text === shownText) return showAsCurrent();
  if (!lines.length) return show([], {}, text);
  byId("result").classList.add("old");
  byId("translate").setAttribute("aria-disabled", "true");
  try {
    const answer = await ask("translate", {q: lines, source, target, alternatives}, mine.signal);
    if (mine === running) show(lines, answer, text);
  } catch (error) {
    if (mine !== running) return; // a later text is on its way
    byId("error").textContent = error instanceof TypeError ? "the server cannot be reached" : error.message;
  } finally {
    if (mine === running) byId("translate").removeAttribute("aria-disabled");
  }
}

/** Show that the translation is that of the text, and that none is awaited. */
function showAsCurrent() {
  byId("result").classList.remove("old");
  byId("translate").removeAttribute("aria-disabled");
}

function show(lines, answer, text) {
  const {translatedText = [], alternatives: others = [], scores = [], notes = [], copied = []} = answer;
  shownText = text;
  showAsCurrent();
  byId("attention").hidden = true;
  byId("said").textContent = translatedText.join("\n");
  byId("result").replaceChildren(...lines.flatMap((line, i) => {
    const found = answer.detectedLanguage?.[i].language, pivot = answer.pivot?.[i], stays = found === byId("target").value;
    const source = pivot || stays ? null : found || byId("source").value; // null: there is no attention between both texts
    const best = wordsOf(line, translatedText[i], copied[i], source);
    best.classList.add("translation");
    const items = (others[i] || []).map((other, k) => element("li", {}, wordsOf(line, other, [], source), score(scores[i][k + 1])));
    const way = [found && `from ${names[found]}`, pivot && `by way of ${names[pivot]}`].filter(Boolean).join(" ");
    const said = stays ? `this is ${names[found]}, not translated` : way && `translated ${way}`;
    const done = [...(said ? [{message: said}] : []), ...(notes[i] || [])].map(noteOf);
    return items.length ? [best, ...done, element("ol", {className: "alternatives", ariaLabel: "Alternatives"}, ...items)] : [best, ...done];
  }));
}

function score(value) {
  return element("span", {className: "score", title: "log-probability, divided by the length penalty"}, value.toFixed(2));
}

/** What was done with a line; what is uncertain asks to be checked. */
function noteOf({message, uncertain}) {
  return element("div", {className: uncertain ? "done uncertain" : "done", textContent: uncertain ? `Check: ${message}` : message});
}

// ---- attention

/** A line of words; each shows its attention to a line in the language `source` when it is pointed at or focused, unless
    `source` is null.  Words in the ranges `copied` look different. */
function wordsOf(line, translation, copied = [], source = byId("source").value) {
  const group = element("div", {className: "words", role: "group", ariaLabel: translation, dir: "auto"});
  const target = byId("target").value;
  const matches = [...translation.matchAll(WORD)], words = matches.map(([word]) => word);
  let found = null; // asked for once, when the first word is pointed at
  matches.forEach(({0: word, index}, i) => {
    const button = element("button", {type: "button", textContent: word, tabIndex: i ? -1 : 0});
    const first = [...translation.slice(0, index)].length, last = first + [...word].length; // in characters, as the server counts
    if (copied.some(([start, end]) => start < last && first < end)) {
      button.classList.add("copied");
      button.title = "copied, not translated";
    }
    const attend = async () => {
      choose(button);
      found ??= ask("attention", {q: line, translation, source, target});
      try {
        const attention = await found;
        if (button.classList.contains("chosen")) showAttention(word, i, line, words, attention);
      } catch (error) {
        found = null;
        byId("error").textContent = error.message;
      }
    };
    if (source !== null) {
      button.addEventListener("pointerenter", attend);
      button.addEventListener("focus", attend);
    }
    group.append(button, translation[index + word.length] === " " ? " " : "");
  });
  group.addEventListener("keydown", moveWithArrows);
  return group;
}

function choose(button) {
  for (const other of document.querySelectorAll(".chosen")) other.classList.remove("chosen");
  button.classList.add("chosen");
}

/** Shade the source words by their weights, and name those with the greatest. */
function showAttention(word, i, line, words, {source: keys, translation: queries, weights}) {
  const row = weights[indexOfQuery(words, i, queries)];
  const own = line.split(/\s+/), names = own.length === keys.length ? own : keys; // as they were typed, if they are as many
  byId("attention").hidden = !row;
  if (!row) return;
  byId("source-words").replaceChildren(...names.flatMap((name, j) => {
    const span = element("span", {textContent: name});
    span.style.setProperty("--weight", row[j]);
    return [span, " "];
  }));
  const best = names.map((name, j) => [row[j], name]).sort((a, b) => b[0] - a[0]).slice(0, 3).filter(([weight]) => weight >= .05);
  byId("reading").textContent = `${word} attends to ${best.map(([weight, name]) => `${name} ${Math.round(100 * weight)} %`).join(", ")}`;
}

/** The index of the query that has the beginning of word i: a query may be several characters of Chinese. */
function indexOfQuery(words, i, queries) {
  if (queries.length === words.length) return i;
  let before = words.slice(0, i).join("").length;
  return queries.findIndex((query) => (before -= query.length) < 0);
}

/** The words of a line are one stop of the Tab key; arrows, Home and End move within it. */
function moveWithArrows(event) {
  if (event.altKey || event.ctrlKey || event.metaKey) return; // the browser's shortcuts
  const buttons = [...event.currentTarget.querySelectorAll("button")], here = buttons.indexOf(document.activeElement);
  const right = getComputedStyle(event.currentTarget).direction === "rtl" ? -1 : 1;
  const there = buttons[
    {ArrowRight: here + right, ArrowLeft: here - right, Home: 0, End: buttons.length - 1}[event.key]];
  if (!there) return;
  event.preventDefault();
  buttons[here].tabIndex = -1;
  there.tabIndex = 0;
  there.focus();
}

// ---- languages

/** The codes of the languages to which the server translates a source language. */
function targetsOf(source) {
  return byId("source").querySelector(`[value="${source}"]`)?.dataset.targets.split(" ") ?? [];
}

/** Show a pair: offer the targets of its source, and the swap if the other direction exists. */
function showPair(source, wanted) {
  const codes = targetsOf(source), target = codes.includes(wanted) ? wanted : codes[0];
  byId("target").replaceChildren(...targetOptions.filter(({value}) => codes.includes(value)));
  byId("source").value = source;
  byId("target").value = target;
  byId("swap").disabled = !targetsOf(target).includes(source);
  byId("source-name").textContent = byId("text-label").textContent = names[source];
  byId("target-name").textContent = byId("result-title").textContent = names[target];
  document.title = `${names[source]} to ${names[target]}`;
  byId("text").lang = byId("source-words").lang = source === "auto" ? "" : source;
  byId("result").lang = target;
}

function choosePair(source, target) {
  showPair(source, target);
  shownText = null;
  translate();
}

// ---- typing

byId("form").addEventListener("submit", (event) => {
  event.preventDefault();
  shownText = null;
  translate();
});
byId("pair").addEventListener("change", () => choosePair(byId("source").value, byId("target").value));
byId("swap").addEventListener("click", () => {
  if (shownText === byId("text").value) byId("text").value = byId("said").textContent; // the translation, to be translated back
  choosePair(byId("target").value, byId("source").value);
});
byId("text").addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(translate, PAUSE);
});
byId("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) translate();
});
showPair(byId("source").value, byId("target").value);
