// The admin works without this. It makes the figures live, asks before a button of no return, and
// keeps a form from being sent twice. It builds no page of its own: what it puts in was rendered
// and escaped by the server.
"use strict";

(() => {
  const STALE_MS = 8000;

  function swap(place, html) {
    // What somebody reads with a finger on it, or has the focus in, is left until they let go.
    const chosen = document.getSelection();
    const isHeld = place.contains(document.activeElement) ||
      (chosen && !chosen.isCollapsed && place.contains(chosen.anchorNode));
    if (isHeld) return false;
    const scrolled = [...place.querySelectorAll(".scroll")].map((one) => one.scrollLeft);
    const made = document.createElement("template");
    made.innerHTML = html;
    place.replaceChildren(made.content);
    place.querySelectorAll(".scroll").forEach((one, n) => { one.scrollLeft = scrolled[n] || 0; });
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

  document.addEventListener("submit", (event) => {
    const form = event.target;
    const question = (event.submitter && event.submitter.dataset.confirm) || form.dataset.confirm;
    if (question && !window.confirm(question)) {
      event.preventDefault();
      return;
    }
    if (form.dataset.sent) event.preventDefault();
    if (form.method === "post") form.dataset.sent = "yes";
  });
  // Back from the next page: a form may be sent again.
  window.addEventListener("pageshow", () => {
    document.querySelectorAll("form[data-sent]").forEach((form) => delete form.dataset.sent);
  });

  // All rows of a table at once: <input type="checkbox" data-all="ids"> ticks every name="ids".
  document.addEventListener("change", (event) => {
    const name = event.target.dataset && event.target.dataset.all;
    if (!name) return;
    const form = event.target.form || document;
    form.querySelectorAll(`input[type="checkbox"][name="${CSS.escape(name)}"]`)
      .forEach((one) => { one.checked = event.target.checked; });
  });
})();
