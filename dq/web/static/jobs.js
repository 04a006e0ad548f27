// The pages about jobs work without this. It copies a command with a click, and shows what is of
// use only with JavaScript.
"use strict";

(() => {
  document.querySelectorAll("[data-shown]").forEach((one) => { one.hidden = false; });

  document.querySelectorAll("button[data-copy]").forEach((button) => {
    const from = document.getElementById(button.dataset.copy);
    if (!from) return;
    button.hidden = false;
    const label = button.textContent;
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(from.textContent);
      } catch {  // no permission, or no https: mark it, so that Ctrl+C does it
        document.getSelection().selectAllChildren(from);
        return;
      }
      button.textContent = button.dataset.copied;
      setTimeout(() => { button.textContent = label; }, 2000);
    });
  });
})();
