// ---- start of a page of one sentence

byId("sentence").textContent = data.sentence;
byId("translation").textContent = data.translation;
document.querySelector(".pair").classList.toggle("long", data.sentence.length + data.translation.length > 200);
byId("origin").textContent = `Model: ${data.origin}.`;
show(data);
