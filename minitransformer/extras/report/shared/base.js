"use strict";

const data = JSON.parse(document.getElementById("data").textContent);

const byId = (id) => document.getElementById(id);
const range = (n) => Array.from({length: n}, (_, i) => i);

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

