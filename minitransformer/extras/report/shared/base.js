"use strict";

const data = JSON.parse(document.getElementById("data").textContent);

const byId = (id) => document.getElementById(id);
const range = (n) => Array.from({length: n}, (_, i) => i);

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

/** Decode base64. */
function toBytes(base64) {
  const text = atob(base64), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}
