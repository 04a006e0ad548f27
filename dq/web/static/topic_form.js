// The form of a topic works without this. While somebody types, the form is sent to be checked by
// the code that saves it, and what that says is shown at the fields that were touched.
"use strict";

(() => {
  const WAIT_MS = 300;
  const form = document.querySelector("form[data-check]");
  if (!form) return;
  const spot = document.getElementById("spot");
  const backoff = form.querySelector("[data-backoff]");
  const touched = new Set([...form.querySelectorAll(".wrong [name]")].map((one) => one.name));
  let timer = 0, asked = 0;

  function showFault(name, text) {
    const input = document.getElementById(`f-${name}`);
    if (!input) return;
    const field = input.closest(".field");
    let note = document.getElementById(`e-${name}`);
    field.classList.toggle("wrong", Boolean(text));
    if (!text) {
      if (note) note.remove();
      input.removeAttribute("aria-invalid");
      const hint = document.getElementById(`h-${name}`);
      if (hint) input.setAttribute("aria-describedby", hint.id);
      else input.removeAttribute("aria-describedby");
      return;
    }
    if (!note) {
      note = document.createElement("p");
      note.className = "fault";
      note.id = `e-${name}`;
      input.after(note);
    }
    if (note.textContent !== text) note.textContent = text;
    input.setAttribute("aria-invalid", "true");
    input.setAttribute("aria-describedby", note.id);
  }

  function showSpot(parts) {
    spot.hidden = !parts;
    if (!parts) return;
    const mark = document.createElement("mark");
    mark.textContent = parts[1] || " ";
    spot.replaceChildren(parts[0], mark, parts[2]);
  }

  async function check() {
    const turn = ++asked;
    const body = new URLSearchParams(new FormData(form));
    let said;
    try {
      const reply = await fetch(form.dataset.check, { method: "POST", body });
      if (!reply.ok) return;
      said = await reply.json();
    } catch {
      return;  // saving tells what is wrong
    }
    if (turn !== asked) return;
    for (const name of touched) showFault(name, said.faults[name] || "");
    showSpot(touched.has("retry_if") ? said.spot : null);
    backoff.textContent = said.backoff;
  }

  function soon(event) {
    if (!event.target.name) return;
    touched.add(event.target.name);
    clearTimeout(timer);
    timer = setTimeout(check, WAIT_MS);
  }
  form.addEventListener("input", soon);
  form.addEventListener("change", soon);
})();
