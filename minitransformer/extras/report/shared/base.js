"use strict";

let data = JSON.parse(document.getElementById("data").textContent);

const byId = (id) => document.getElementById(id);
const range = (n) => Array.from({length: n}, (_, i) => i);

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

/** Replace the children of a container; the focus of a button goes to the new button at its place. */
function replaceChildren(container, children) {
  const place = [...container.querySelectorAll("button")].indexOf(document.activeElement);
  container.replaceChildren(...children);
  container.querySelectorAll("button")[place]?.focus();
}

/** Decode base64. */
function toBytes(base64) {
  const text = atob(base64), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

/** Make a radio button or a check box that looks like a button. */
function choice(type, name, value, text, onChange, colour) {
  const input = element("input", {type, name, value});
  input.addEventListener("change", onChange);
  const label = element("span", {className: colour ? "head" : "", textContent: text});
  if (colour) label.style.setProperty("--colour", colour);
  return element("label", {className: "choice"}, input, label);
}

/** Make a group of buttons one stop of the Tab key; arrows, Home and End move within it. */
function moveWithArrows(group, columns, onMove) {
  group.addEventListener("focusin", ({target}) => {
    for (const button of group.querySelectorAll("button")) button.tabIndex = button === target ? 0 : -1;
  });
  group.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return; // the browser's own keys, as Alt+ArrowLeft to go back
    const buttons = [...group.querySelectorAll("button")];
    const here = buttons.indexOf(document.activeElement), steps = {
      ArrowDown: columns, ArrowUp: -columns, ArrowRight: 1, ArrowLeft: -1, Home: -here, End: buttons.length - 1 - here,
    };
    const there = buttons[here + steps[event.key]];
    if (here < 0 || !there) return;
    event.preventDefault();
    there.focus();
    onMove(here + steps[event.key]);
  });
}
