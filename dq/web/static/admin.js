// The admin works without this. It makes the figures live, asks before a button of no return, and
// keeps a form from being sent twice. It builds no page of its own: what it puts in was rendered
// and escaped by the server.
"use strict";

(() => {
  const STALE_MS = 8000;

  // Makes `had` like `wanted` and leaves every part that is the same as it is, with what a person
  // did to it: an opened detail, a scrolled table, a ticked box. A form is the same, or another one.
  function update(had, wanted) {
    const before = [...had.childNodes], after = [...wanted.childNodes];
    after.forEach((fresh, n) => {
      const old = before[n];
      if (!old) had.append(fresh);
      else if (old.isEqualNode(fresh)) return;
      else if (old.nodeName !== fresh.nodeName || fresh.nodeName === "FORM") old.replaceWith(fresh);
      else if (old.nodeType !== Node.ELEMENT_NODE) old.data = fresh.data;
      else { dress(old, fresh); update(old, fresh); }
    });
    before.slice(after.length).forEach((one) => one.remove());
  }

  function dress(old, fresh) {
    for (const { name } of [...old.attributes]) {
      if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
    }
    for (const { name, value } of fresh.attributes) {
      if (name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
  }

  function swap(place, html) {
    // Where somebody types, or has marked a text, it is left until they let go.
    const active = document.activeElement, chosen = document.getSelection();
    const isHeld = (place.contains(active) && active.matches("input, select, textarea")) ||
      (chosen && !chosen.isCollapsed && chosen.containsNode(place, true));
    if (isHeld) return false;
    const made = document.createElement("template");
    made.innerHTML = html;
    update(place, made.content);
    return true;
  }

  function follow(root) {
    const stale = root.querySelector(".stale");
    const waiting = new Map();
    let source = null, lastMs = Date.now();

    function show() {
      for (const [name, html] of waiting) {
        const place = root.querySelector(`[data-fragment="${CSS.escape(name)}"]`);
        if (!place || swap(place, html)) waiting.delete(name);
      }
    }
    function tellStale() {
      if (!stale) return;
      const isStale = !document.hidden && Date.now() - lastMs > STALE_MS;
      stale.textContent = isStale ? root.dataset.liveStale : "";
      stale.hidden = !isStale;
    }
    function open() {
      if (source || document.hidden) return;
      lastMs = Date.now();
      source = new EventSource(root.dataset.live);
      source.onmessage = (event) => {
        lastMs = Date.now();
        for (const [name, html] of Object.entries(JSON.parse(event.data))) waiting.set(name, html);
        show();
      };
      source.addEventListener("beat", () => { lastMs = Date.now(); });
      source.onerror = () => {
        if (source.readyState === EventSource.CLOSED) {  // refused: perhaps the session is over
          source = null;
          setTimeout(open, 5000);
        }
      };
    }
    function close() {
      if (source) source.close();
      source = null;
    }
    document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
    window.addEventListener("pagehide", close);
    window.addEventListener("pageshow", open);
    setInterval(() => { show(); tellStale(); }, 1000);
    open();
  }

  document.querySelectorAll("[data-live]").forEach(follow);

  // On a narrow screen the tabs scroll: the present one should be in sight.
  const tab = document.querySelector(".tabs [aria-current]");
  if (tab) tab.parentElement.scrollLeft = tab.offsetLeft - tab.parentElement.clientWidth / 2;

  let sent = new WeakSet();
  document.addEventListener("submit", (event) => {
    const form = event.target;
    const question = (event.submitter && event.submitter.dataset.confirm) || form.dataset.confirm;
    if (question && !window.confirm(question)) {
      event.preventDefault();
      return;
    }
    if (sent.has(form)) event.preventDefault();
    if (form.method === "post") sent.add(form);
  });
  // Back from the next page: a form may be sent again.
  window.addEventListener("pageshow", () => { sent = new WeakSet(); });

  // All rows of a table at once: <input type="checkbox" data-all="ids"> ticks every name="ids".
  document.addEventListener("change", (event) => {
    const name = event.target.dataset && event.target.dataset.all;
    if (!name) return;
    const form = event.target.form || document;
    form.querySelectorAll(`input[type="checkbox"][name="${CSS.escape(name)}"]`)
      .forEach((one) => { one.checked = event.target.checked; });
  });
})();
